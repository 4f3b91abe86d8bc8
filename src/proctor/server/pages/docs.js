// The API as a plain list, made of /openapi.json; nothing is loaded from elsewhere.
"use strict";
const $ = (id) => document.getElementById(id);

function make(tag, text, kind) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function parameters(operation) {
  const rows = (operation.parameters || []).map((one) => {
    const kind = (one.schema && (one.schema.type || (one.schema.anyOf || []).map((s) => s.type).join("|"))) || "";
    return `${one.name} (${one.in}${one.required ? ", required" : ""}) ${kind} ${one.description || ""}`.trim();
  });
  return rows.length ? make("pre", rows.join("\n")) : null;
}

function bodySchema(operation, whole) {
  const content = ((operation.requestBody || {}).content || {})["application/json"];
  if (!content) return null;
  const name = (content.schema.$ref || "").split("/").pop();
  return make("pre", JSON.stringify(whole.components.schemas[name] || content.schema, null, 2));
}

function entry(path, method, operation, whole) {
  const box = document.createElement("details");
  const head = document.createElement("summary");
  head.append(make("b", method.toUpperCase()), make("code", path), document.createTextNode(` ${operation.summary || ""}`));
  box.append(head);
  if (operation.description) box.append(make("p", operation.description));
  box.addEventListener("toggle", () => {
    if (box.dataset.filled) return;
    box.dataset.filled = "yes";
    for (const part of [parameters(operation), bodySchema(operation, whole)]) if (part) box.append(part);
    box.append(make("p", `Answers: ${Object.keys(operation.responses || {}).join(", ")}`, "quiet"));
  });
  return box;
}

function show(whole) {
  $("who").textContent = `version ${whole.info.version}`;
  for (const tag of whole.tags) {
    const part = document.createElement("section");
    part.append(make("h2", tag.name), make("p", tag.description, "quiet"));
    for (const [path, methods] of Object.entries(whole.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if ((operation.tags || []).includes(tag.name)) part.append(entry(path, method, operation, whole));
      }
    }
    $("api").append(part);
  }
}

function filter() {
  const words = $("find").value.toLowerCase();
  for (const box of document.querySelectorAll("details")) box.hidden = !box.firstChild.textContent.toLowerCase().includes(words);
}

async function begin() {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) {
    $("notice").textContent = "This browser is not signed in. Run `proctor open` in a terminal.";
    $("notice").hidden = false;
    return;
  }
  show(await answer.json());
  $("find").addEventListener("input", filter);
}

begin();
