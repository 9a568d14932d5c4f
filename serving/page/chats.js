// Chats that this browser keeps, in its own storage and nowhere else: what was asked and answered, and what was kept of the prompts.
const name = "glimpse-chats";
const most = 100; // chats
const longest = 4000; // tokens of a prompt that are kept to be shown

function read() {
  try {
    const all = JSON.parse(localStorage.getItem(name));
    return Array.isArray(all) ? all.filter(c => c && typeof c.id === "string" && Array.isArray(c.turns) && Array.isArray(c.messages)) : [];
  } catch (e) {
    return []; // no storage, or what lies there is none of ours
  }
}

// write keeps as many of the latest chats as there is room for. It returns whether the first of them has found room.
function write(all) {
  for (let n = Math.min(all.length, most); n > 0; n = Math.floor(n / 2)) {
    try {
      localStorage.setItem(name, JSON.stringify(all.slice(0, n)));
      return true;
    } catch (e) { // it is full, or there is none
    }
  }
  try {
    localStorage.removeItem(name);
  } catch (e) { // there is none
  }
  return !all.length;
}

// list is every chat, the latest first.
export const list = read;

// save keeps a chat as the latest.
export function save(chat) {
  const lean = {...chat, turns: chat.turns.map(t => t.kept?.tokens?.length > longest ? {...t, kept: {...t.kept, tokens: null}} : t)};
  return write([lean, ...read().filter(c => c.id !== chat.id)]);
}

export function remove(id) {
  write(read().filter(c => c.id !== id));
}
