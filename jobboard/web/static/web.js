// What the page adds where scripts run: live figures, keys, and comfort. Everything works without it.
"use strict";
const $ = (what, from = document) => from.querySelector(what);
const $$ = (what, from = document) => [...from.querySelectorAll(what)];
const body = document.body;

// Times: the reader's own clock, where the pointer rests. Buttons that copy.
function dress(from = document) {
  for (const each of $$("time", from)) {
    const at = new Date(each.dateTime);
    if (!isNaN(at)) each.title = `${at.toLocaleString()} here, ${each.dateTime.replace("T", " ").replace("Z", "")} UTC`;
  }
  for (const each of navigator.clipboard ? $$("[data-copy]", from) : []) {
    each.hidden = false;
    each.onclick = () => navigator.clipboard.writeText(each.dataset.copy).then(() => { each.textContent = "Copied"; });
  }
}
dress();
$(".pages [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

// Light and dark. A cookie, so that the next page does not flash.
const theme = $("[data-theme-button]");
const root = document.documentElement;
const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const label = () => { theme.textContent = dark() ? "Light" : "Dark"; };
theme.hidden = false;
label();
theme.onclick = () => {
  root.dataset.theme = dark() ? "light" : "dark";
  const home = new URL($(".mark").href).pathname;
  document.cookie = `jobboard_theme=${root.dataset.theme};path=${home};max-age=31536000;samesite=strict`;
  label();
};

// Live: the counts of the head on every page, and the parts of some pages, unless a hand or an eye is on them.
const live = $("[data-live-button]");
const data = body.dataset;
let on = sessionStorage.getItem("jobboard-live") !== "off";
function hand() {
  const chosen = getSelection();
  return $("main :is(a, button, summary, input):is(:hover, :focus-visible)")
    || (chosen && !chosen.isCollapsed && $("main").contains(chosen.anchorNode));
}
const read = (part) => $$("pre, .scroll", part).some((each) => each.scrollTop || each.scrollLeft);
// What can be focused, by names that outlast a new reading: a text, and a number among those with the text.
function named(part) {
  const found = new Map(), seen = {};
  for (const each of $$("a, button, summary, input, [tabindex]", part)) {
    const text = each.tagName + each.textContent.trim();
    found.set(text + (seen[text] = (seen[text] ?? 0) + 1), each);
  }
  return found;
}
function put(part, fresh) {
  const before = named(part), focused = document.activeElement;
  part.replaceChildren(...fresh.childNodes);
  for (const [name, each] of named(part)) {
    const old = before.get(name);
    if (old && each.matches("details > summary")) each.parentNode.open = old.parentNode.open;
    if (old === focused) each.focus({ preventScroll: true });
  }
  dress(part);
}
// What a pointer or a key is on its way to stays at its place.
function count(counts) {
  for (const each of $$("[data-count]")) {
    if (!each.closest("nav:is(:hover, :focus-within)")) each.textContent = counts[each.dataset.count] ?? each.textContent;
  }
}
async function renew() {
  if (hand()) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const parts = (from) => $$("main section[id^=p-]", from);
  const names = (from) => parts(from).map((each) => each.id).join();
  if (hand()) return;
  let isWhole = true;
  if (names(document) !== names(fresh)) {
    if (read($("main"))) return;
    put($("main"), $("main", fresh));
  } else for (const part of parts(document)) {
    const next = fresh.getElementById(part.id);
    if (next.innerHTML === part.innerHTML) continue;
    if (read(part)) isWhole = false;
    else put(part, next);
  }
  // What was left is shown later.
  if (isWhole) data.version = fresh.body.dataset.version ?? "";
}
async function beat() {
  let trouble = "The server of this page does not answer.", state = null;
  try {
    const answer = await fetch(data.state + (data.job ? `?job=${data.job}` : ""), { signal: AbortSignal.timeout(10000) });
    if (answer.ok) {
      state = await answer.json();
      trouble = state.trouble;
      count(state.counts);
    } else trouble = `The server of this page answers ${answer.status}.`;
  } catch { /* as above */ }
  const banner = $("#banner");
  if (trouble) $("[data-trouble]", banner).textContent = trouble;
  banner.hidden = !trouble;
  live.classList.toggle("off", Boolean(trouble));
  if (!state) return true;
  if (!trouble && "away" in data) {
    if (/\/(act|rule|schedule)$/.test(location.pathname)) location.assign($(".mark").href);
    else location.reload();
    return false;
  }
  if ("live" in data && (!data.job || (state.version && state.version !== data.version))) await renew().catch(() => {});
  if (state.complete) delete data.filling;
  return true;
}
async function pulse() {
  const goes = !on || document.hidden || await beat();
  if (goes) setTimeout(pulse, "filling" in data ? 700 : 5000);
}
if (data.state) {
  live.hidden = false;
  const show = () => { live.setAttribute("aria-pressed", String(on)); live.textContent = on ? "Live" : "Paused"; };
  show();
  live.onclick = () => { on = !on; sessionStorage.setItem("jobboard-live", on ? "on" : "off"); show(); };
  setTimeout(pulse, "filling" in data ? 300 : 5000);
}

// Choosing: all of the page, a range with shift, and the number of them.
let last = null;
for (const form of $$("form:has([data-list])")) {
  const boxes = $$("[name=job]", form), all = $("[data-all]", form), said = $("[data-chosen]", form);
  const count = () => {
    const chosen = boxes.filter((each) => each.checked).length;
    if (said) said.textContent = chosen ? `With ${chosen} chosen` : "With the chosen jobs";
    if (all) { all.checked = chosen === boxes.length; all.indeterminate = chosen > 0 && chosen < boxes.length; }
  };
  if (all) { all.hidden = false; all.onclick = () => { boxes.forEach((each) => { each.checked = all.checked; }); count(); }; }
  boxes.forEach((box, at) => box.addEventListener("click", (event) => {
    if (event.shiftKey && last !== null) for (let i = Math.min(at, last); i <= Math.max(at, last); i++) boxes[i].checked = box.checked;
    last = at;
    count();
  }));
  form.addEventListener("change", count);
}

// A form acts once, however often its button is clicked before the answer comes.
const sent = new Set();
addEventListener("pageshow", () => sent.clear());
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (sent.has(form)) event.preventDefault();
  else if (form.method === "post") {
    sent.add(form);
    // Somebody may have stopped the page before its answer.
    setTimeout(() => sent.delete(form), 10000);
  }
});

// Long work goes on by itself.
const further = $("[data-goes-on]");
if (further) setTimeout(() => further.requestSubmit(), 400);

// Keys.
const keys = $("#keys"), help = $("[data-help-button]");
help.hidden = false;
help.onclick = () => keys.showModal();
function step(by) {
  const rows = $$("[data-list] tbody tr");
  const at = rows.findIndex((each) => each.classList.contains("at"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  if (!next) return;
  rows.forEach((each) => each.classList.toggle("at", each === next));
  next.scrollIntoView({ block: "nearest" });
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const row = $("tr.at");
  const acts = {
    j: () => step(1), k: () => step(-1), o: () => row && $("a", row)?.click(), x: () => row && $("[name=job]", row)?.click(),
    "/": () => $(".filters input")?.focus(), n: () => $("[rel=next]")?.click(), r: () => location.reload(), "?": () => keys.showModal(),
  };
  const page = $$(".pages a")[Number(event.key) - 1];
  if (acts[event.key] || page) { event.preventDefault(); (acts[event.key] || (() => page.click()))(); }
});
