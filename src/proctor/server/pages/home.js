// The page only shows. Everything others wrote goes in as text, never as markup.
"use strict";
const KEY = "proctor_page_key";
const $ = (id) => document.getElementById(id);
const KINDS = { completed: "good", failed: "bad", blocked: "bad", awaiting_approval: "wait", cancelled: "quiet" };

function make(tag, text, kind) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function headers() {
  const key = localStorage.getItem(KEY);
  return key ? { "X-Proctor-Page": key } : {};
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...headers(), ...(options.headers || {}) } });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(body.error || `HTTP ${answer.status}`), { status: answer.status });
  return body;
}

function say(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

async function signIn() {
  const code = new URLSearchParams(location.hash.slice(1)).get("login");
  if (!code) return;
  history.replaceState(null, "", "/"); // the code leaves the address before it is used
  const made = await ask("/api/browser/login", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }),
  });
  localStorage.setItem(KEY, made.page_key);
}

function showInbox(rows) {
  const list = $("inbox");
  list.replaceChildren();
  if (!rows.length) list.append(make("li", "Nothing waits for you.", "quiet"));
  for (const row of rows) {
    const item = make("li", row.action);
    const facts = [`${row.risk_level} risk`, row.tool_name, row.task_id, `until ${moment(row.expires_at)}`].filter(Boolean);
    item.append(make("div", facts.join(" · "), "quiet"));
    item.append(make("code", `proctor approve ${row.approval_id}`));
    list.append(item);
  }
}

function showTasks(page) {
  const body = $("tasks");
  body.replaceChildren();
  for (const task of page.items) {
    const row = document.createElement("tr");
    const simulated = task.result && task.result.simulated ? " (simulated)" : "";
    row.append(make("td", task.status.replaceAll("_", " ") + simulated, `mark ${KINDS[task.status] || ""}`));
    const what = make("td", task.description.split("\n")[0].slice(0, 160));
    what.append(make("div", task.task_id, "quiet"));
    row.append(what, make("td", task.agent || "–"), make("td", String(task.priority)), make("td", moment(task.created_at)));
    body.append(row);
  }
  if (!page.items.length) {
    const row = document.createElement("tr");
    const cell = make("td", "No tasks yet. Add one with `proctor tasks add \"…\"`.", "quiet");
    cell.colSpan = 5;
    row.append(cell);
    body.append(row);
  }
  $("more").hidden = !page.next;
  $("more").textContent = page.next ? `The newest ${page.items.length} are shown; \`proctor tasks list --all\` has more.` : "";
}

function moment(text) {
  return text ? new Date(text).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : "–";
}

async function refresh() {
  const [inbox, tasks] = await Promise.all([ask("/api/approvals?limit=50"), ask("/api/tasks?limit=50")]);
  showInbox(inbox);
  showTasks(tasks);
}

function follow() {
  let waiting = null;
  const lines = new EventSource("/api/events");
  lines.onmessage = () => {
    waiting ??= setTimeout(() => { waiting = null; refresh().then(() => say(""), lost); }, 500);
  };
  lines.onopen = () => say("");
  lines.onerror = () => say("The server does not answer. What is shown may be old; it is tried again. `proctor open` starts it.");
}

function lost(error) {
  $("lists").hidden = error.status === 401;
  say(error.status === 401
    ? "This browser is not signed in. Run `proctor open` in a terminal: it gives a link that works once."
    : `${error.message} What is shown may be old.`);
}

async function leave() {
  await ask("/api/browser/logout", { method: "POST" });
  localStorage.removeItem(KEY);
  location.reload();
}

async function begin() {
  try {
    await signIn();
  } catch (error) {
    say(error.message);
    return;
  }
  try {
    const me = await ask("/api/me");
    const where = me.workspace ? `in ${me.workspace}` : "for all workspaces";
    $("who").textContent = `${me.user} · ${where} · profile ${me.profile} · version ${me.version}`;
    $("leave").hidden = me.signed_in !== "browser" || !me.pages_write;
    $("lists").hidden = false;
    await refresh();
    follow();
  } catch (error) {
    $("who").textContent = "";
    lost(error);
  }
}

$("leave").addEventListener("click", () => leave().catch((error) => say(error.message)));
addEventListener("hashchange", () => location.reload()); // a new link in a page that is open already
begin();
