// The page of evict serve: a chat, and what was kept of its prompts. Texts of the model are text, or the elements of markdown.js, and never HTML.
import * as chats from "./chats.js";
import {render} from "./markdown.js";
import {grouped} from "./policies.js";

const $ = id => document.getElementById(id);
const keyName = "glimpse-api-key"; // in the tab's storage

let model = "";
let defaults = {};       // policy and budget of requests that name none
let adapters = [];
let budget = "";         // that was chosen, as requests say it: "25%"; "" is the server's
let messages = [];       // of the conversation, as the API has them
let running = null;      // the AbortController of the answer that is being written, or of the document that is being compressed
let doc = null;          // that questions are asked behind: the context's name, and the text
let chat = null;         // that is kept in the browser; null: it has yet to begin
let about = {};          // a sentence for every policy

// call sends a request. A failure is an Error with the server's words, status and param.
async function call(path, body, signal, method = body ? "POST" : "GET") {
  const headers = {"Content-Type": "application/json"}, key = sessionStorage.getItem(keyName);
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch(path, {method, headers, body: body && JSON.stringify(body), signal});
  if (response.ok) return response;
  const error = (await response.json().catch(() => ({}))).error || {};
  if (response.status === 401) askForKey();
  throw Object.assign(new Error(error.message || `${path}: status ${response.status}`), {status: response.status, param: error.param});
}

function askForKey() {
  $("login").hidden = false;
  $("key").focus();
}

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

async function start() {
  try {
    const models = await (await call("/v1/models")).json();
    adapters = (await (await call("/v1/adapters")).json()).data;
    $("login").hidden = true;
    ({id: model, eviction: defaults} = models.data[0]);
    $("model").textContent = $("model").title = model;
    document.title = `${model}: Glimpse`;
    offerPolicies(models.policy_details);
    $("lossy").hidden = !defaults.lossy;
    $("lossy").textContent = `This server is lossy: ${defaults.policy} at ${amount(defaults.budget)} leaves out a part of ` +
      `${defaults.full_below > 0 ? `prompts of ${defaults.full_below} tokens and more` : "every prompt"}, so that answers may differ from the full cache's.`;
    $("hint").hidden = $("log").childElementCount > 0;
    showBudget();
    offerAdapters();
    say("");
    if (!chat && !$("log").childElementCount && chats.list().length) await openChat(chats.list()[0]);
    listChats();
  } catch (e) {
    say(e.message, true);
    if (e.status === 503) setTimeout(start, 2000); // the model is being loaded
  }
}

// policy is the one that answers: what was chosen, or the server's.
const policy = () => $("policy").value || defaults.policy;
const amount = budget => budget.endsWith("%") ? budget : `${budget} entries`;

// offerPolicies fills the list, by groups.
function offerPolicies(details) {
  const groups = grouped(details, adapters);
  about = Object.fromEntries(groups.flatMap(([, all]) => all.map(p => [p.name, p.about])));
  $("policy").replaceChildren(new Option(`${defaults.policy} (default)`, ""), ...groups.map(([title, all]) => {
    const group = document.createElement("optgroup");
    group.label = title;
    group.append(...all.map(p => Object.assign(new Option(p.name), {title: p.about})));
    return group;
  }));
}

// showBudget shows the budget that was chosen, or the server's, which keeps all of short prompts.
function showBudget() {
  const whole = policy() === "full", share = /^(\d+(?:\.\d+)?)%$/.exec(budget || defaults.budget);
  if (share) $("budget").value = share[1];
  $("budget").disabled = whole;
  $("share").textContent = whole ? "all" : amount(budget || defaults.budget);
  $("budget").setAttribute("aria-valuetext", $("share").textContent);
  $("about").textContent = about[policy()] || "";
}

function offerAdapters() {
  const fit = adapters.filter(a => a.policy === policy());
  $("adapter").replaceChildren(new Option(fit.length ? "the usual" : "none", ""), ...fit.map(a => new Option(a.name)));
  $("adapter").disabled = !fit.length;
}

// events sends a request and yields the events that it is answered with.
async function* events(path, body, signal) {
  let response;
  try {
    response = await call(path, body, signal);
  } catch (e) {
    if (e.param !== "eviction.kept") throw e; // a prompt too long to be shown
    response = await call(path, {...body, eviction: {...body.eviction, kept: false}}, signal);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", ended = false;
  for (;;) {
    const {value, done} = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") { ended = true; continue; }
      const part = JSON.parse(line.slice(6));
      if (part.error) throw new Error(part.error.message);
      yield part;
    }
  }
  if (!ended) throw new Error("The answer broke off.");
}

// stream asks for an answer and calls onText with what there is of it, and of the thoughts before it, and onPrompt with how far the prompt has
// run. It returns the usage, the time of the first token, and why the answer ended.
async function stream(body, signal, onText, onPrompt) {
  const began = performance.now();
  let usage = null, first = 0, reason = "";
  for await (const part of events("/v1/chat/completions", body, signal)) {
    usage = part.usage || usage;
    if (part.prompt_progress) onPrompt(part.prompt_progress);
    reason = part.choices[0]?.finish_reason || reason;
    const {content, reasoning_content: thoughts} = part.choices[0]?.delta || {};
    if (!content && !thoughts) continue;
    first ||= performance.now() - began;
    onText(content || "", thoughts || "");
  }
  return {usage, first, reason};
}

const fullCache = "full cache"; // the title of its answers

// chosen is what the user has chosen of policy, budget and adapter: what was not chosen is the server's to say.
function chosen() {
  const all = {policy: $("policy").value, budget: $("budget").disabled ? "" : budget, adapter: $("adapter").value};
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value));
}

// sampling is what the drawer says, and the server's where it says nothing.
function sampling() {
  const all = {temperature: $("temperature").value, top_p: $("top-p").value, seed: $("seed").value, max_tokens: $("most-tokens").value};
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== "").map(([name, value]) => [name, Number(value)]));
}

const redrawEvery = 80; // milliseconds, of an answer that grows

// answerOf is an answer's place below a title.
function answerOf(turn, title) {
  const answer = $("answer-template").content.cloneNode(true).firstElementChild;
  answer.querySelector("h3").textContent = title;
  answer.classList.toggle("full", title === fullCache);
  turn.querySelector(".answers").append(answer);
  return answer;
}

// show shows an answer as far as it is there. Its tools come with the end.
function show(answer, {text, thoughts, facts}, ended = false) {
  answer.querySelector(".answered").replaceChildren(...render(text));
  const thinking = answer.querySelector("details");
  thinking.lastElementChild.textContent = thoughts;
  thinking.hidden = !thoughts;
  if (facts !== undefined) answer.querySelector(".facts").textContent = facts;
  answer.querySelector(".tools").hidden = !ended || !text;
  answer.querySelector(".copy-all").onclick = e => copy(text, e.currentTarget);
}

// write has an answer written below a title, and returns its text with what stream returns. Stopped, what there is remains. before is
// an answer that goes on, with its place.
async function write(turn, title, asked, eviction, before = null) {
  const answer = before?.answer || answerOf(turn, title);
  const facts = answer.querySelector(".facts"), reading = answer.querySelector(".reading"), bar = reading.firstElementChild;
  answer.querySelector(".tools").hidden = true;
  running = new AbortController();
  setBusy(true);
  say("The prompt is being read.");
  const out = {text: before?.text || "", thoughts: before?.thoughts || "", usage: null, reason: "", facts: "", answer};
  let drawn = 0;
  const draw = () => {
    const follow = atEnd();
    show(answer, {text: out.text, thoughts: out.thoughts});
    drawn = performance.now();
    if (follow) scrollToEnd();
  };
  try {
    const body = {model, messages: before ? [...asked, {role: "assistant", content: before.text}] : asked, ...sampling(), stream: true, stream_options: {include_usage: true}, return_progress: true, eviction};
    Object.assign(out, await stream(body, running.signal, (part, thought) => {
      if (!out.text || !drawn) say(part ? "The answer is being written." : "The model thinks.");
      reading.hidden = true;
      out.text += part;
      out.thoughts += thought;
      if (performance.now() - drawn > redrawEvery) draw();
    }, ({processed, total, cache, time_ms: took}) => {
      reading.hidden = processed >= total || took < 500;
      bar.ariaValueNow = Math.round(100 * processed / total);
      bar.firstElementChild.style.width = `${100 * processed / total}%`;
      say(`${number(processed)} of ${number(total)} tokens of the prompt are read${left(took, processed - cache, total - processed)}.`);
    }));
    const u = out.usage, short = out.reason === "length";
    const speed = u.eviction.tokens_per_s ? `${number(u.eviction.tokens_per_s)} tokens/s` : `${u.completion_tokens} tokens`;
    out.facts = `${speed}, first after ${duration(out.first || u.eviction.prefill_ms)}${short ? `. Cut at ${number(u.completion_tokens)} tokens` : ""}`;
    say(short ? `The answer is cut at ${number(u.completion_tokens)} tokens: "Go on" has it written further.` : "");
  } catch (e) {
    const stopped = e.name === "AbortError";
    out.facts = stopped ? "stopped" : "failed";
    say(stopped ? "Stopped." : e.message, !stopped);
  } finally {
    running = null;
    setBusy(false);
    reading.hidden = true;
    const follow = atEnd();
    show(answer, out, true);
    answer.querySelector(".go-on").hidden = !cut(out);
    if (follow) scrollToEnd();
  }
  return out;
}

// cut tells that an answer has an end that is not its own.
const cut = ({text, reason, facts}) => !!text && (reason === "length" || facts === "stopped");

function setBusy(busy) {
  $("log").setAttribute("aria-busy", busy);
  $("send").disabled = $("clear").disabled = $("choose").disabled = $("take-away").disabled = busy;
  $("stop").disabled = !busy;
  for (const b of document.querySelectorAll(".compare, .go-on, #chats button")) b.disabled = busy;
}

// turnOf is the place of a message and its answers.
function turnOf(text, behind) {
  const turn = $("turn-template").content.cloneNode(true).firstElementChild;
  turn.querySelector(".asked").textContent = text;
  turn.classList.toggle("behind", behind);
  $("log").append(turn);
  return turn;
}

// askedWith is a conversation with a system prompt before it.
const askedWith = (system, all) => system ? [{role: "system", content: system}, ...all] : all;

async function send() {
  const text = $("message").value.trim();
  if (!text || running || !model) return;
  $("message").value = "";
  $("hint").hidden = true;
  const turn = turnOf(text, !!doc);
  scrollToEnd();
  const said = [...messages, {role: "user", content: text}], behind = doc;
  const whole = policy() === "full", eviction = doc ? {context: doc.name} : {...chosen(), kept: true};
  const system = doc ? "" : $("system").value.trim(); // a document stands there
  const record = {asked: text, behind: !!doc, system, eviction, answers: [], kept: null};
  const title = whole ? fullCache : `${policy()} at ${$("share").textContent}`;
  const out = await write(turn, title, askedWith(system, said), eviction);
  if (out.usage || out.text) takeDown(record, said, title, out);
  else $("message").value ||= text; // to be sent again
  if (out.usage) {
    const follow = atEnd();
    const u = out.usage, e = u.eviction;
    const short = !whole && !behind && u.prompt_tokens < defaults.full_below ? `Prompts of fewer than ${number(defaults.full_below)} tokens stay whole. ` : "";
    record.kept = {entries: e.kept_entries, of: u.prompt_tokens, tokens: e.tokens, facts: `${short}${memory(e)}; ${number(e.read_entries)} entries read a step; ` +
      `prompt in ${duration(e.prefill_ms)}, ${number(u.prompt_tokens_details.cached_tokens)} of its tokens cached`};
    showRecord(turn, record.kept);
    keep(record);
    if (follow) scrollToEnd();
  }
  if (record.answers.length) offerMore(turn, record, said, title, out);
}

// takeDown takes an answer down: that it was given anew, or goes on.
function takeDown(record, said, title, out) {
  messages = [...said, {role: "assistant", content: out.text, ...(out.thoughts && {reasoning_content: out.thoughts})}];
  record.answers[0] = {title, text: out.text, thoughts: out.thoughts, facts: out.facts, cut: cut(out)};
  keep(record);
}

// offerMore lets a turn's answer go on, and be given with the full cache, too. said ends with what was asked.
function offerMore(turn, record, said, title, out) {
  const asked = askedWith(record.system, said), behind = record.behind && doc;
  turn.querySelector(".go-on").onclick = async () => {
    if (running || turn !== $("log").lastElementChild) return say("A later message has followed: only the last answer goes on.", true);
    const more = await write(turn, title, asked, record.eviction, out);
    if (more.text === out.text) return;
    out = more;
    takeDown(record, said, title, out);
  };
  if (!record.kept || title === fullCache || record.answers.length > 1) return;
  const compare = turn.querySelector(".compare");
  compare.classList.add("ready");
  compare.addEventListener("click", async () => {
    const full = await write(turn, fullCache, behind ? unfolded(behind.text, asked) : asked, {policy: "full"});
    if (!full.usage) return;
    full.facts += `. ${difference(full.text, out.text)}`;
    show(full.answer, full, true);
    full.answer.querySelector(".go-on").hidden = true;
    record.answers[1] = {title: fullCache, text: full.text, thoughts: full.thoughts, facts: full.facts};
    keep(record);
    compare.hidden = true;
    $("message").focus();
  });
}

// showRecord shows what was kept of a turn's prompt.
function showRecord(turn, {entries, of, tokens, facts}) {
  showKept(turn.querySelector(".kept"), entries, of, facts);
  showTokens(turn.querySelector(".tokens"), tokens);
}

// keep keeps the chat in the browser, with a turn that is new or has changed.
function keep(turn) {
  chat ||= {id: crypto.randomUUID?.() || String(Date.now()), title: turn.asked.slice(0, 80), turns: []};
  if (!chat.turns.includes(turn)) chat.turns.push(turn);
  Object.assign(chat, {model, time: Date.now(), messages, document: doc && {name: doc.name, title: $("document").querySelector("h2").textContent}});
  chats.save(chat);
  listChats();
}

// openChat shows a chat that was kept, and goes on with it.
async function openChat(kept) {
  if (running) return;
  chat = kept;
  messages = kept.messages;
  $("log").replaceChildren();
  $("hint").hidden = true;
  kept.turns.forEach((record, i) => {
    const turn = turnOf(record.asked, record.behind), [first] = record.answers.map(a => {
      const answer = answerOf(turn, a.title);
      show(answer, a, true);
      return {...a, answer};
    });
    if (record.kept) showRecord(turn, record.kept);
    if (!first || !record.eviction || record.behind && doc?.name !== record.eviction.context) return;
    offerMore(turn, record, messages.slice(0, 2 * i + 1), first.title, first);
    first.answer.querySelector(".go-on").hidden = !first.cut || i + 1 < kept.turns.length;
  });
  const last = kept.turns.at(-1);
  if (last && !last.behind && last.system !== undefined) $("system").value = last.system; // of this chat, not of one before
  listChats();
  scrollToEnd();
  if (kept.document && doc?.name !== kept.document.name) say(`The document "${kept.document.title}" of this chat is not there: give it again to ask behind it.`);
}

function startChat() {
  chat = null;
  messages = [];
  $("log").replaceChildren();
  $("hint").hidden = false;
  listChats();
  say("");
}

// listChats lists what is kept in the drawer.
function listChats() {
  const all = chats.list();
  $("chats").replaceChildren(...all.map(c => {
    const row = document.createElement("li"), open = document.createElement("button"), gone = document.createElement("button");
    open.textContent = c.title || "Without words";
    open.type = gone.type = "button";
    open.className = "open";
    if (c.id === chat?.id) open.ariaCurrent = "true";
    open.addEventListener("click", () => openChat(c));
    gone.textContent = "Delete";
    gone.ariaLabel = `Delete the chat ${c.title}`;
    gone.addEventListener("click", () => {
      chats.remove(c.id);
      if (c.id === chat?.id) startChat();
      listChats();
    });
    row.append(open, gone);
    return row;
  }));
  $("chats-note").hidden = !all.length;
  $("chats-title").textContent = all.length ? "Chats in this browser" : "No chats in this browser yet";
}

// copy puts a text onto the clipboard, which pages without encryption reach by a selection alone.
async function copy(text, button) {
  const before = button.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch (e) {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "unseen";
    document.body.append(field);
    field.select();
    done = document.execCommand("copy");
    field.remove();
    button.focus();
  }
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

// difference says how far two answers are the same.
function difference(full, evicted) {
  if (full === evicted) return "The same words.";
  const a = full.split(/\s+/), b = evicted.split(/\s+/);
  let same = 0;
  while (same < a.length && a[same] === b[same]) same++;
  return same ? `${same} of ${a.length} words are the same, then they differ.` : "Other words from the first on.";
}

// unfolded is a conversation whose first message begins with a document, as the server puts it there.
const unfolded = (text, [first, ...rest]) => [{...first, content: `${text}\n\n${first.content}`}, ...rest];

// give makes a text the document that questions are asked behind, in the place of another one. It returns whether it has become one.
async function give(title, text) {
  if (running || !model || !await takeAway()) return false;
  const view = $("document");
  view.classList.remove("ready");
  view.querySelector("h2").textContent = title;
  showAmount(view, "It waits for its turn.", 0, "progressbar");
  view.querySelector(".facts").textContent = "";
  view.hidden = false;
  view.scrollIntoView({block: "nearest"});
  $("settings").disabled = true; // what stands there is the document's from now on
  running = new AbortController();
  setBusy(true);
  say("The document is being compressed.");
  let made = null;
  const began = performance.now();
  try {
    for await (const part of events("/v1/contexts", {model, text, stream: true, ttl: 24 * 60 * 60, eviction: {...chosen(), kept: true}}, running.signal)) {
      if (part.object === "context") made = part;
      else showAmount(view, `${number(part.tokens_done)} of ${number(part.tokens)} tokens have run${left(performance.now() - began, part.tokens_done, part.tokens - part.tokens_done)}`, part.tokens_done / part.tokens, "progressbar");
    }
    doc = {name: made.name, text};
    showKept(view, made.kept_entries, made.tokens, `${number(made.tokens)} tokens in ${duration(made.prefill_ms)}; ${memory(made)}; its name is ${made.name}`);
    showTokens(view.querySelector(".tokens"), made.kept);
    view.querySelector("details").open = made.tokens <= 400;
    say("");
  } catch (e) {
    view.hidden = true;
    $("settings").disabled = false;
    const stopped = e.name === "AbortError";
    say(stopped ? "Stopped." : e.param === "eviction.policy" ? `A document wants another policy. ${e.message}.` : e.message, !stopped);
  } finally {
    running = null;
    setBusy(false);
  }
  $("message").focus();
  return !!doc;
}

// takeAway has the server forget the document. It returns whether there is none.
async function takeAway() {
  try {
    if (doc) await call(`/v1/contexts/${encodeURIComponent(doc.name)}`, null, null, "DELETE");
  } catch (e) {
    if (e.status !== 404) { // which is gone already
      say(e.message, true);
      return false;
    }
  }
  doc = null;
  $("document").hidden = true;
  $("settings").disabled = false;
  return true;
}

// giveFile makes a file the document.
async function giveFile(file) {
  if (running) return say("A document has to wait until the answer is there.", true);
  let text;
  try {
    text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer());
  } catch (e) {
    return say(`${file.name} is not a text in UTF-8.`, true);
  }
  if (text.trim()) await give(file.name, text);
  else say(`${file.name} is empty.`, true);
}

const longText = 4000; // characters that are pasted as a document
const memory = e => `${bytes(e.kept_bytes)} of memory${e.full_bytes ? `, full ${bytes(e.full_bytes)}` : ""}`;

function showAmount(kept, text, share, role = "img") {
  const bar = kept.querySelector(".bar");
  kept.querySelector(".amount").textContent = text;
  bar.role = role;
  bar.ariaLabel = text;
  bar.ariaValueNow = role === "progressbar" ? Math.round(100 * share) : null;
  bar.firstElementChild.style.width = `${100 * share}%`;
}

function showKept(kept, entries, of, facts) {
  kept.classList.add("ready");
  showAmount(kept, `${number(entries)} of ${number(of)} entries per head (${Math.round(100 * entries / of)}%)`, entries / of);
  kept.querySelector(".facts").textContent = facts;
}

// showTokens shows what was kept of every token.
function showTokens(tokens, kept) {
  if (!kept) {
    tokens.textContent = "The prompt is too long to be shown.";
    return;
  }
  tokens.tabIndex = 0; // to be scrolled by keys
  tokens.replaceChildren(...kept.map(([text, share], i) => {
    const span = document.createElement("span");
    span.textContent = text;
    span.className = `k${share > 0 ? Math.max(1, Math.floor(10 * share)) : 0}`;
    span.title = `token ${i}: kept by ${Math.round(100 * share)}% of the heads`;
    return span;
  }));
}

const number = x => x.toLocaleString("en", {maximumFractionDigits: x < 100 ? 1 : 0});
// left is how much longer something takes of which a part is done, once there is a second to tell it by.
const left = (took, done, rest) => took >= 1000 && done > 0 && took * rest / done > 2000 ? `, ${duration(took * rest / done)} left` : "";
const duration = ms => ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000)} s`;

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${number(n)} ${units[i]}`;
}

// Who reads at the end of the page is kept there; who has scrolled up is not moved.
const page = document.documentElement;
const atEnd = () => page.scrollHeight - page.clientHeight - page.scrollTop < 40;
const scrollToEnd = () => page.scrollTo(0, page.scrollHeight);

$("composer").addEventListener("submit", e => { e.preventDefault(); send(); });
$("message").addEventListener("keydown", e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
});
document.addEventListener("keydown", e => {
  if (e.key !== "Escape") return;
  if (running) running.abort();
  else if (!$("drawer").hidden) { $("more").click(); $("more").focus(); }
});
$("stop").addEventListener("click", () => { running?.abort(); $("message").focus(); });
$("clear").addEventListener("click", () => { startChat(); $("message").focus(); });
$("more").addEventListener("click", () => {
  const open = $("drawer").hidden;
  $("drawer").hidden = !open;
  document.body.classList.toggle("more", open);
  $("more").setAttribute("aria-expanded", open);
});
$("log").addEventListener("click", e => {
  if (e.target.matches(".code-head .copy")) copy(e.target.closest(".code").querySelector("pre").textContent, e.target);
});
$("choose").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  const [file] = $("file").files;
  if (file) await giveFile(file);
  $("file").value = ""; // the same one may be chosen again
});
$("take-away").addEventListener("click", async () => {
  if (await takeAway()) say("The document is gone.");
  $("message").focus();
});
$("message").addEventListener("paste", async e => {
  const text = e.clipboardData.getData("text/plain");
  if (text.length < longText || running || !model) return;
  e.preventDefault();
  if (!await give("Pasted text", text)) $("message").setRangeText(text, $("message").selectionStart, $("message").selectionEnd, "end");
});
const over = e => e.dataTransfer?.types.includes("Files");
for (const type of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(type, e => {
    if (!over(e)) return;
    e.preventDefault(); // the browser would leave the page for the file
    document.body.classList.toggle("over", type === "dragover");
    if (type === "drop") giveFile(e.dataTransfer.files[0]);
  });
}
$("policy").addEventListener("change", () => {
  if (!$("policy").value) budget = ""; // all is the server's again
  showBudget();
  offerAdapters();
});
$("budget").addEventListener("input", () => { budget = `${$("budget").value}%`; showBudget(); });
$("login").addEventListener("submit", e => {
  e.preventDefault();
  sessionStorage.setItem(keyName, $("key").value.trim());
  $("key").value = "";
  start().then(() => { if ($("login").hidden) $("message").focus(); });
});
for (const part of $("turn-template").content.querySelectorAll(".tokens, .scale")) $("document").querySelector("details").append(part.cloneNode(true));
$("message").focus();
start();
