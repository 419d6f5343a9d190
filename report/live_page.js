// Replaces the content of the page every two seconds while it is looked at, until the run ends. What was opened stays open.
const token = new URLSearchParams(location.search).get("token");
const main = document.querySelector("main");
const state = () => main.querySelector("[data-state]").dataset.state;  // "running", "done" (all steps) or "ended"
async function refresh() {
  const answer = await fetch("content?token=" + encodeURIComponent(token), {cache: "no-store"});
  if (!answer.ok) throw new Error(answer.status);
  const open = new Set([...main.querySelectorAll("details[open]")].map(d => d.id));
  main.innerHTML = await answer.text();
  for (const details of main.querySelectorAll("details")) details.open = open.has(details.id);
}
// Says what the last state means now that the run does not answer (page.css).
function explain_silence() {
  document.body.dataset.silent = state();
  if (state() === "done") main.querySelector("[data-state] .more").textContent = "complete";
}
async function look() {
  try {
    await refresh();
    delete document.body.dataset.silent;
  } catch {
    explain_silence();
  }
  if (state() === "ended") explain_silence();
}
async function watch() {
  if (!document.hidden && document.body.dataset.silent !== "ended") await look();
  setTimeout(watch, 2000);
}
setTimeout(watch, 2000);
