#include "comm/ucx/ucx_transport.h"

#include <fmt/format.h>
#include <poll.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "comm/ucx/ucx_worker.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kFlush{300};  // longest time that a rank that leaves waits until its last messages are sent

class UcxTransport;

// A message that UCX may still know. The transport owns it as long as UCX does.
struct Operation {
  UcxTransport* transport = nullptr;
  int peer = 0;
  size_t expected = 0;  // bytes of a receive
  bool is_receive = false;
  void* request = nullptr;  // UCX's; null when it is done with the message
  MessageState state = MessageState::Pending;
  bool wrong_size = false;
};

class UcxMessage final : public PendingMessage {
 public:
  UcxMessage(UcxTransport& transport, std::shared_ptr<Operation> operation)
      : transport_(transport), operation_(std::move(operation)) {}
  ~UcxMessage() override;
  MessageState wait(milliseconds slice) override;

 private:
  UcxTransport& transport_;
  std::shared_ptr<Operation> operation_;
};

class UcxTransport final : public Transport {
 public:
  UcxTransport(std::unique_ptr<UcxWorker> worker, int rank, std::vector<std::string> addresses, uint64_t key);
  ~UcxTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::unique_ptr<PendingMessage> send(int peer, uint64_t tag, std::span<const std::byte> bytes) override;
  std::unique_ptr<PendingMessage> receive(int peer, uint64_t tag, std::span<std::byte> bytes) override;
  void progress() override;
  bool has_given_up() const override;
  std::string why_gone(int peer) const override;

  MessageState wait(const Operation& operation, milliseconds slice);
  void cancel(const std::shared_ptr<Operation>& operation);
  // Called by UCX, in progress() and close().
  void finished(Operation& operation, ucs_status_t status, size_t bytes);

 private:
  struct Peer {
    UcxTransport* transport = nullptr;
    std::string address;
    ucp_ep_h endpoint = nullptr;
    std::string why_gone;  // empty: it is not gone
    bool was_sent_to = false;
  };

  Peer& connected(int peer);
  // Whoever does not know the key cannot say for which receive a message is: UCX keeps it and gives it to nobody.
  uint64_t full_tag(int sender, uint64_t tag) const { return (static_cast<uint64_t>(sender) << kTagBits | tag) ^ key_; }
  void started(const std::shared_ptr<Operation>& operation, void* request);
  void fail(Operation& operation);
  void lose(Peer& peer, const std::string& why);
  void give_up(const std::string& why);
  void move_messages(std::unique_lock<std::mutex>& lock, Clock::time_point until);
  void wake_sleeper();
  void close_endpoints(bool send_the_rest, milliseconds patience);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  const int rank_;
  const uint64_t key_;
  const Descriptor events_;   // may be polled while the worker is destroyed
  mutable std::mutex mutex_;  // guards everything below, and all calls of UCX
  std::condition_variable changed_;
  std::unique_ptr<UcxWorker> worker_;  // null after give_up
  std::vector<Peer> peers_;
  std::unordered_map<const Operation*, std::shared_ptr<Operation>> under_way_;  // operations with a request
  bool gave_up_ = false;                                                        // although no peer was gone
  bool moving_ = false, sleeping_ = false;                                      // a thread is in move_messages, and polls there
};

UcxTransport::UcxTransport(std::unique_ptr<UcxWorker> worker, int rank, std::vector<std::string> addresses, uint64_t key)
    : rank_(rank), key_(key), events_(worker->take_events()), worker_(std::move(worker)), peers_(addresses.size()) {
  for (size_t i = 0; i < addresses.size(); ++i) {
    peers_[i].transport = this;
    peers_[i].address = std::move(addresses[i]);
  }
}

UcxTransport::~UcxTransport() {
  const std::lock_guard lock(mutex_);
  if (!worker_) return;
  close_endpoints(true, kFlush);
  worker_.reset();
}

UcxTransport::Peer& UcxTransport::connected(int index) {
  Peer& peer = peers_.at(index);
  if (peer.endpoint || !peer.why_gone.empty()) return peer;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = on_error, .arg = &peer};
  const ucs_status_t status = ::ucp_ep_create(worker_->handle(), &params, &peer.endpoint);
  if (status != UCS_OK) {
    peer.endpoint = nullptr;
    lose(peer, ::ucs_status_string(status));
  }
  return peer;
}

void sent(void*, ucs_status_t status, void* operation) {
  auto& message = *static_cast<Operation*>(operation);
  message.transport->finished(message, status, 0);
}

void received(void*, ucs_status_t status, const ucp_tag_recv_info_t* info, void* operation) {
  auto& message = *static_cast<Operation*>(operation);
  message.transport->finished(message, status, status == UCS_OK ? info->length : 0);
}

std::unique_ptr<PendingMessage> UcxTransport::send(int to, uint64_t tag, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  auto operation = std::make_shared<Operation>(Operation{.transport = this, .peer = to});
  if (!worker_ || !connected(to).why_gone.empty()) {
    operation->state = MessageState::PeerGone;
    return std::make_unique<UcxMessage>(*this, std::move(operation));
  }
  peers_[to].was_sent_to = true;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = sent;
  params.user_data = operation.get();
  started(operation, ::ucp_tag_send_nbx(peers_[to].endpoint, bytes.data(), bytes.size(), full_tag(rank_, tag), &params));
  wake_sleeper();
  return std::make_unique<UcxMessage>(*this, std::move(operation));
}

std::unique_ptr<PendingMessage> UcxTransport::receive(int from, uint64_t tag, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  auto operation =
      std::make_shared<Operation>(Operation{.transport = this, .peer = from, .expected = bytes.size(), .is_receive = true});
  if (!worker_) {
    operation->state = MessageState::PeerGone;
    return std::make_unique<UcxMessage>(*this, std::move(operation));
  }
  const Peer& peer = connected(from);  // without a connection of its own, this rank would not hear that the peer is gone
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = received;
  params.user_data = operation.get();
  started(operation,
          ::ucp_tag_recv_nbx(worker_->handle(), bytes.data(), bytes.size(), full_tag(from, tag), ~uint64_t{0}, &params));
  // Only what had arrived before can still be received.
  if (!peer.why_gone.empty() && operation->state == MessageState::Pending) fail(*operation);
  wake_sleeper();
  return std::make_unique<UcxMessage>(*this, std::move(operation));
}

// UCX may be done with a message at once, with or without a request, and whether or not it has called finished().
void UcxTransport::started(const std::shared_ptr<Operation>& operation, void* request) {
  if (!request || UCS_PTR_IS_ERR(request)) return finished(*operation, UCS_PTR_STATUS(request), 0);
  if (operation->state != MessageState::Pending) return ::ucp_request_free(request);
  operation->request = request;
  under_way_.emplace(operation.get(), operation);
  if (::ucp_request_check_status(request) == UCS_INPROGRESS) return;
  ucp_tag_recv_info_t info{};
  const ucs_status_t status =
      operation->is_receive ? ::ucp_tag_recv_request_test(request, &info) : ::ucp_request_check_status(request);
  finished(*operation, status, info.length);
}

void UcxTransport::finished(Operation& operation, ucs_status_t status, size_t bytes) {
  if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
    operation.wrong_size = status != UCS_OK || (operation.is_receive && bytes != operation.expected);
    operation.state = MessageState::Complete;
  } else {
    operation.state = MessageState::PeerGone;
    Peer& peer = peers_[operation.peer];
    if (status != UCS_ERR_CANCELED && peer.why_gone.empty()) lose(peer, ::ucs_status_string(status));
  }
  if (!operation.request) return;
  ::ucp_request_free(std::exchange(operation.request, nullptr));
  under_way_.erase(&operation);
}

// UCX forgets a receive for which nothing has arrived yet. If a part has, nothing more will come: the peer is gone.
void UcxTransport::fail(Operation& operation) {
  if (operation.is_receive && operation.request) ::ucp_request_cancel(worker_->handle(), operation.request);
  operation.state = MessageState::PeerGone;
}

void UcxTransport::lose(Peer& peer, const std::string& why) {
  if (!peer.why_gone.empty()) return;
  peer.why_gone = "its connection ended: " + why;
  const auto index = &peer - peers_.data();
  const auto under_way = under_way_;  // fail() changes the map
  for (const auto& [known, operation] : under_way)
    if (operation->peer == index && operation->is_receive) fail(*operation);
}

void UcxTransport::on_error(void* context, ucp_ep_h, ucs_status_t status) {
  Peer& peer = *static_cast<Peer*>(context);
  peer.transport->lose(peer, ::ucs_status_string(status));
}

void UcxTransport::progress() {
  const std::lock_guard lock(mutex_);
  if (!worker_ || moving_) return;  // another thread does it
  const size_t before = under_way_.size();
  worker_->progress();
  if (under_way_.size() != before) changed_.notify_all();
}

bool UcxTransport::has_given_up() const {
  const std::lock_guard lock(mutex_);
  return gave_up_;
}

std::string UcxTransport::why_gone(int peer) const {
  const std::lock_guard lock(mutex_);
  return peers_.at(peer).why_gone;
}

void UcxTransport::wake_sleeper() {
  if (sleeping_ && worker_) worker_->wake();
}

// One thread at a time moves messages, for all threads that wait: the others sleep until it has finished some.
MessageState UcxTransport::wait(const Operation& operation, milliseconds slice) {
  std::unique_lock lock(mutex_);
  const auto until = Clock::now() + slice;
  bool looked = false;
  while (operation.state == MessageState::Pending && worker_ && !(looked && Clock::now() >= until)) {
    looked = true;
    if (moving_) {
      changed_.wait_until(lock, until);
      continue;
    }
    moving_ = true;
    move_messages(lock, until);
    moving_ = false;
    changed_.notify_all();
  }
  if (operation.wrong_size)
    throw std::logic_error(fmt::format("comm: rank {} sent a message of another size than this rank's receive of {} bytes",
                                       operation.peer, operation.expected));
  return operation.state;
}

void UcxTransport::move_messages(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
  const size_t before = under_way_.size();
  worker_->progress();
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
  if (under_way_.size() != before || left <= 0 || !worker_->arm()) return;
  pollfd entry{events_.number(), POLLIN, 0};
  sleeping_ = true;
  lock.unlock();
  ::poll(&entry, 1, static_cast<int>(left));
  lock.lock();
  sleeping_ = false;
  if (worker_) worker_->progress();
}

void UcxTransport::cancel(const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(mutex_);
  if (!operation->request || !worker_) return;
  if (operation->is_receive) ::ucp_request_cancel(worker_->handle(), operation->request);
  if (!operation->request) return;
  gave_up_ = gave_up_ || peers_[operation->peer].why_gone.empty();
  give_up("this rank has cancelled a message of which a part was on its way");
}

// UCX cannot take back a message of which a part is on its way. Destroying the worker is the only way to make sure that it does
// not touch the bytes any more.
void UcxTransport::give_up(const std::string& why) {
  for (Peer& peer : peers_) lose(peer, why);
  close_endpoints(false, milliseconds(0));
  wake_sleeper();
  worker_.reset();
  for (const auto& [known, operation] : under_way_) {
    operation->request = nullptr;
    operation->state = MessageState::PeerGone;
  }
  under_way_.clear();
  changed_.notify_all();
}

// Data that UCX has accepted may still be in its memory, even if the send is complete.
void UcxTransport::close_endpoints(bool send_the_rest, milliseconds patience) {
  std::vector<void*> requests;
  for (Peer& peer : peers_) {
    if (!peer.endpoint) continue;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = send_the_rest && peer.was_sent_to && peer.why_gone.empty() ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
    void* request = ::ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &params);
    if (request && !UCS_PTR_IS_ERR(request)) requests.push_back(request);
  }
  const auto until = Clock::now() + patience;
  for (void* request : requests) {
    while (::ucp_request_check_status(request) == UCS_INPROGRESS) {
      worker_->progress();
      if (Clock::now() >= until) break;
      pollfd entry{events_.number(), POLLIN, 0};
      if (worker_->arm()) ::poll(&entry, 1, 1);
    }
    ::ucp_request_free(request);
  }
}

UcxMessage::~UcxMessage() { transport_.cancel(operation_); }
MessageState UcxMessage::wait(milliseconds slice) { return transport_.wait(*operation_, slice); }

class UcxBeforeConnecting final : public UnconnectedTransport {
 public:
  UcxBeforeConnecting(const NetworkInterface& interface, int rank)
      : worker_(std::make_unique<UcxWorker>(interface)), rank_(rank) {}
  const std::string& address() const override { return worker_->address(); }
  std::unique_ptr<Transport> connect(std::vector<std::string> addresses, uint64_t key) override {
    return std::make_unique<UcxTransport>(std::move(worker_), rank_, std::move(addresses), key);
  }

 private:
  std::unique_ptr<UcxWorker> worker_;
  const int rank_;
};

}  // namespace

std::unique_ptr<UnconnectedTransport> open_ucx(const NetworkInterface& interface, int rank, int) {
  return std::make_unique<UcxBeforeConnecting>(interface, rank);
}

std::string ucx_version() { return fmt::format("UCX {}", ::ucp_get_version_string()); }

}  // namespace trivet::comm
