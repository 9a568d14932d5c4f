"use strict";
(() => {
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  document.documentElement.classList.add("js");

  // Tabs: one of several at a time. A budget that is chosen is chosen in the whole article.
  const choose = (group, tab) => {
    if (!tab) return;
    [...group.tabs].forEach((t, i) => {
      t.hidden = t !== tab;
      group.bar.children[i].setAttribute("aria-selected", t === tab);
    });
  };
  const groups = all(".tabs").filter(g => g.children.length > 1).map(element => {
    const group = {element, tabs: [...element.children], bar: document.createElement("div")};
    group.bar.className = "tabbar";
    group.bar.setAttribute("role", "tablist");
    return group;
  });
  for (const group of groups) {
    const article = group.element.closest("article");
    for (const tab of group.tabs) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("role", "tab");
      button.textContent = tab.querySelector("h4").textContent;
      button.addEventListener("click", () => {
        const before = group.bar.getBoundingClientRect().top;
        choose(group, tab);
        for (const other of groups) {
          if (other === group || other.element.closest("article") !== article) continue;
          const shown = other.tabs.find(t => !t.hidden);
          choose(other, other.tabs.find(t => t.dataset.name === tab.dataset.name && t.dataset.of === shown.dataset.of));
        }
        // Those above may have changed in height.
        window.scrollBy({top: group.bar.getBoundingClientRect().top - before, behavior: "instant"});
      });
      group.bar.append(button);
    }
    group.element.classList.add("many");
    group.element.prepend(group.bar);
    choose(group, group.tabs[0]);
  }

  // Tips.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const show = (text, e) => {
    tip.textContent = text;
    tip.hidden = false;
    const room = document.documentElement.clientWidth, box = tip.getBoundingClientRect();
    const x = Math.max(4, Math.min(e.clientX + 14, room - box.width - 4));
    const y = e.clientY - box.height - 12 < 0 ? e.clientY + 18 : e.clientY - box.height - 12;
    tip.style.left = `${x + window.scrollX}px`;
    tip.style.top = `${y + window.scrollY}px`;
  };
  const hide = () => { tip.hidden = true; };

  // Charts: the mark that is nearest to the pointer names its series, in all charts of the
  // article.
  const light = (article, name) => all(".series", article).forEach(s => s.classList.toggle("on", s.dataset.name === name));
  for (const svg of all(".chart svg")) {
    const marks = all(".series circle", svg), article = svg.closest("article") || document;
    if (marks.length === 0) continue;
    svg.addEventListener("pointermove", e => {
      const at = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
      let nearest = null, least = 40;
      for (const m of marks) {
        const d = Math.hypot(m.cx.baseVal.value - at.x, m.cy.baseVal.value - at.y);
        if (d < least) [nearest, least] = [m, d];
      }
      light(article, nearest && nearest.parentNode.dataset.name);
      if (nearest) show(nearest.dataset.tip, e); else hide();
    });
    svg.addEventListener("pointerleave", () => { light(article, null); hide(); });
  }
  for (const key of all(".legend li[data-name]")) {
    const article = key.closest("article");
    key.addEventListener("pointerenter", () => light(article, key.dataset.name));
    key.addEventListener("pointerleave", () => light(article, null));
  }
  for (const rect of all("rect[data-tip]")) {
    rect.addEventListener("pointermove", e => show(rect.dataset.tip, e));
    rect.addEventListener("pointerleave", hide);
  }

  // What is kept: shades of tokens. Only none and all have those of the ends.
  for (const view of all(".kept")) {
    const data = JSON.parse(view.querySelector("script").textContent);
    const tokens = all(".prompt i", view), last = data.digits.length - 1;
    const shade = share => share === last ? 8 : Math.min(7, Math.ceil(share * 8 / last));
    const names = key => [...new Set(data.cells.map(c => c[key]))];
    let shares = [];
    const select = (label, options) => {
      const s = document.createElement("select"), l = document.createElement("label");
      options.forEach(o => s.add(new Option(o, o)));
      l.append(`${label} `, s);
      view.querySelector(".controls").append(l);
      s.addEventListener("change", paint);
      return s;
    };
    const paint = () => {
      const cell = data.cells.find(c => c.policy === policy.value && c.budget === budget.value);
      shares = cell ? [...cell.shares].map(d => data.digits.indexOf(d)) : [];
      tokens.forEach((t, i) => { t.className = `k${cell ? shade(shares[i]) : 0}`; });
    };
    const policy = select("policy", names("policy")), budget = select("budget", names("budget"));
    paint();
    view.querySelector(".prompt").addEventListener("pointermove", e => {
      const i = tokens.indexOf(e.target);
      if (i < 0 || shares[i] === undefined) return hide();
      const position = i < data.cut ? i : data.from[1] + i - data.cut;
      show(`position ${position}: kept by ${Math.round(100 * shares[i] / last)}% of the heads`, e);
    });
    view.querySelector(".prompt").addEventListener("pointerleave", hide);
  }
})();
