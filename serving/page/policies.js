// Policies in groups, for people who choose one.

// Bounds and parts of studies: requests may name them, and the page does not offer them.
const hidden = ["oracle", "random", "exact-topk", "compose"];

// What suits most prompts, with what it is good for.
const recommended = {
  full: "Keeps everything: the model's own answers, in all of the memory.",
  lookaheadkv: "Trained rows look where the answer is going to look. The first choice where there is an adapter for the model.",
  snapkv: "Keeps what the end of the prompt looks at. Fast, and good where the question comes last.",
  laq: "Drafts a few tokens of the answer first and keeps what these look at. Better than snapkv, and starts later.",
  kvzip: "Keeps what is needed to repeat the prompt, whatever may be asked of it later: for documents that many questions follow.",
  "rocketkv-mt": "Keeps everything and reads a part of it: answers faster, in all of the memory, over many turns.",
};

export const groups = ["Recommended", "Learned", "By score, before the answer", "While the answer is written"];

const sentence = text => `${text[0].toUpperCase()}${text.slice(1)}.`;

// grouped is [title, [{name, about}]] of what the server tells of its policies. Those without their adapter or pattern are left out.
export function grouped(policies, adapters) {
  const out = new Map(groups.map(g => [g, []]));
  for (const p of policies) {
    if (hidden.includes(p.name) || p.needs === "pattern" || p.adapter && !adapters.some(a => a.policy === p.name)) continue;
    const group = recommended[p.name] ? groups[0] : p.adapter ? groups[1] : /decode|turn/.test(p.kind) ? groups[3] : groups[2];
    out.get(group).push({name: p.name, about: recommended[p.name] || sentence(p.doc)});
  }
  const order = Object.keys(recommended);
  out.get(groups[0]).sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
  return [...out].filter(([, all]) => all.length);
}
