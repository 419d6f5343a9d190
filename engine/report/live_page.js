// Replaces the content of the page every two seconds. What was opened stays open.
const token = new URLSearchParams(location.search).get("token");
const main = document.querySelector("main");
async function refresh() {
  try {
    const answer = await fetch("content?token=" + encodeURIComponent(token), {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const open = new Set([...main.querySelectorAll("details[open]")].map(d => d.id));
    main.innerHTML = await answer.text();
    for (const details of main.querySelectorAll("details")) details.open = open.has(details.id);
    document.title = document.title.replace(/ \(not answering\)$/, "");
  } catch {
    if (!document.title.endsWith(" (not answering)")) document.title += " (not answering)";
  }
}
setInterval(() => { if (!document.hidden) refresh(); }, 2000);
