// Replaces the content of the page every two seconds while it is looked at. What was opened stays open.
const token = new URLSearchParams(location.search).get("token");
const main = document.querySelector("main");
async function refresh() {
  try {
    const answer = await fetch("content?token=" + encodeURIComponent(token), {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const open = new Set([...main.querySelectorAll("details[open]")].map(d => d.id));
    main.innerHTML = await answer.text();
    for (const details of main.querySelectorAll("details")) details.open = open.has(details.id);
    document.body.classList.remove("silent");
  } catch {
    document.body.classList.add("silent");
  }
}
async function watch() {
  if (!document.hidden) await refresh();
  setTimeout(watch, 2000);
}
setTimeout(watch, 2000);
