// A subset of Markdown, made into elements. Texts become text nodes, never markup: HTML in them is shown as it is written, images are
// no elements, and links lead to http, https and mailto alone.

const deepest = 8; // quotes, lists and emphasis within each other

const element = (name, ...children) => {
  const e = document.createElement(name);
  e.append(...children);
  return e;
};

// The inline forms, in the order in which they are tried at a place. None looks further than 1,000 characters: marks without an end
// would have the rest of the text read again for each.
const inline = new RegExp([
  /\\([\\`*_{}[\]()#+\-.!~>|])/,                                   // 1: an escape
  /(`+)(?!`)([\s\S]{0,999}?[^`])\2(?!`)/,                           // 2, 3: code
  /\[([^[\]\n]+)\]\(<?([^\s<>()]+(?:\([^\s<>()]*\))?)>?\)/,          // 4, 5: a link
  /<?((?:https?:\/\/|mailto:)[^\s<>"'`]*[^\s<>"'`.,;:!?)\]*_])>?/,   // 6: an address
  /\*\*(?=\S)([\s\S]{0,999}?\S)\*\*(?!\*)/,                              // 7: strong
  /(?<![\w])__(?=\S)([\s\S]{0,999}?\S)__(?!\w)/,                         // 8: strong
  /\*(?=[^\s*])([\s\S]{0,999}?[^\s*])\*(?!\*)/,                          // 9: emphasis
  /(?<![\w])_(?=[^\s_])([\s\S]{0,999}?[^\s_])_(?!\w)/,                   // 10: emphasis
  /~~(?=\S)([\s\S]{0,999}?\S)~~/,                                        // 11: struck out
].map(r => r.source).join("|"), "g");

function link(address, ...children) {
  let url;
  try {
    url = new URL(address);
  } catch (e) {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  const a = element("a", ...children);
  a.href = url.href;
  a.target = "_blank";
  a.rel = "noopener noreferrer nofollow";
  return a;
}

// spans are the nodes of a line, or of several.
function spans(text, depth = 0) {
  if (depth > deepest) return [text];
  const out = [];
  let at = 0;
  for (const m of text.matchAll(inline)) {
    const [all, escape, , code, label, address, plain, strong1, strong2, em1, em2, struck] = m;
    let node = null;
    if (escape !== undefined) node = escape;
    else if (code !== undefined) node = element("code", code.replace(/^ (.*\S.*) $/s, "$1"));
    else if (label !== undefined) node = link(address, ...spans(label, depth + 1));
    else if (plain !== undefined) node = link(plain, plain);
    else if (strong1 ?? strong2) node = element("strong", ...spans(strong1 ?? strong2, depth + 1));
    else if (em1 ?? em2) node = element("em", ...spans(em1 ?? em2, depth + 1));
    else if (struck !== undefined) node = element("del", ...spans(struck, depth + 1));
    if (node === null) continue; // stays text
    out.push(text.slice(at, m.index), node);
    at = m.index + all.length;
  }
  out.push(text.slice(at));
  return out.filter(x => x !== "");
}

const fence = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const heading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const rule = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const quote = /^ {0,3}> ?/;
const item = /^( *)([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const cells = line => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map(c => c.trim().replace(/\\\|/g, "|"));
const divider = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

// code is a block of code, with a head that copies it.
function code(language, text) {
  const copy = element("button", "Copy");
  copy.type = "button";
  copy.className = "copy";
  copy.ariaLabel = `Copy the code${language ? ` in ${language}` : ""}`;
  const pre = element("pre", element("code", text));
  pre.tabIndex = 0; // to be scrolled by keys
  pre.role = "region";
  pre.ariaLabel = `Code${language ? ` in ${language}` : ""}`;
  const head = element("div", element("span", language || "code"), copy);
  head.className = "code-head";
  const box = element("div", head, pre);
  box.className = "code";
  return box;
}

// list takes the items of a list from lines, and returns it with the line behind it.
function list(lines, start, depth) {
  const [, indent, mark] = item.exec(lines[start]), ordered = /\d/.test(mark);
  const out = element(ordered ? "ol" : "ul");
  if (ordered && parseInt(mark) !== 1) out.start = parseInt(mark);
  let i = start;
  while (i < lines.length) {
    const m = item.exec(lines[i]);
    if (!m || m[1].length > indent.length + 1 || m[1].length < indent.length || /\d/.test(m[2]) !== ordered || rule.test(lines[i])) break;
    const inner = [lines[i].slice(m[0].length)], room = m[1].length + 2;
    for (i++; i < lines.length; i++) {
      const blank = !lines[i].trim(), more = lines[i].length - lines[i].trimStart().length >= room;
      if (blank ? !(lines[i + 1] || "").startsWith(" ".repeat(room)) : !more && (item.test(lines[i]) || !inner.at(-1).trim() || fence.test(lines[i]) || heading.test(lines[i]))) break;
      inner.push(lines[i].slice(Math.min(lines[i].length - lines[i].trimStart().length, m[0].length)));
    }
    const parts = blocks(inner, depth + 1);
    if (parts[0]?.nodeName === "P") parts.splice(0, 1, ...parts[0].childNodes); // a tight item
    out.append(element("li", ...parts));
    while (i < lines.length && !lines[i].trim() && item.test(lines[i + 1] || "")) i++;
  }
  return [out, i];
}

function table(lines, start) {
  const align = cells(lines[start + 1]).map(c => /^:-+:$/.test(c) ? "center" : /-:$/.test(c) ? "right" : "");
  const row = (name, line) => element("tr", ...cells(line).slice(0, align.length).map((c, i) => {
    const cell = element(name, ...spans(c));
    if (align[i]) cell.className = align[i];
    return cell;
  }));
  const body = element("tbody");
  let i = start + 2;
  for (; i < lines.length && lines[i].includes("|") && lines[i].trim(); i++) body.append(row("td", lines[i]));
  const box = element("div", element("table", element("thead", row("th", lines[start])), body));
  box.className = "table";
  box.tabIndex = 0;
  box.role = "region";
  box.ariaLabel = "Table";
  return [box, i];
}

// blocks are the elements of lines.
function blocks(lines, depth) {
  const out = [];
  let paragraph = [];
  const end = () => {
    if (paragraph.length) out.push(element("p", ...spans(paragraph.join("\n"))));
    paragraph = [];
  };
  for (let i = 0; i < lines.length;) {
    const line = lines[i], begun = fence.exec(line);
    if (begun) {
      end();
      const inner = [], close = new RegExp(`^ {0,3}${begun[1][0]}{${begun[1].length},}\\s*$`);
      for (i++; i < lines.length && !close.test(lines[i]); i++) inner.push(lines[i]);
      i++;
      out.push(code(begun[2], inner.join("\n")));
    } else if (heading.test(line)) {
      end();
      const [, marks, text] = heading.exec(line);
      out.push(element(`h${Math.min(6, marks.length + 3)}`, ...spans(text))); // below the page's own
      i++;
    } else if (rule.test(line)) {
      end();
      out.push(element("hr"));
      i++;
    } else if (quote.test(line) && depth < deepest) {
      end();
      const inner = [];
      for (; i < lines.length && quote.test(lines[i]); i++) inner.push(lines[i].replace(quote, ""));
      out.push(element("blockquote", ...blocks(inner, depth + 1)));
    } else if (item.test(line) && depth < deepest && (!paragraph.length || /^ *([-*+]|1[.)])\s+\S/.test(line))) {
      end();
      const [made, next] = list(lines, i, depth);
      out.push(made);
      i = next;
    } else if (line.includes("|") && divider.test(lines[i + 1] || "") && cells(line).length === cells(lines[i + 1]).length) {
      end();
      const [made, next] = table(lines, i);
      out.push(made);
      i = next;
    } else {
      if (line.trim()) paragraph.push(line);
      else end();
      i++;
    }
  }
  end();
  return out;
}

// render is a text as elements.
export function render(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}
