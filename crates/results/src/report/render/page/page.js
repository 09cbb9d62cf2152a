// The script of a report's page. The page stands without it: every table and figure is in the
// markup. The script selects among them (metric, scale, seeds, baseline), hides and singles out
// lines, sorts and filters rows, shows values under the pointer, and opens runs. It loads nothing
// and writes text only as text.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  document.documentElement.classList.add("js");

  // --- Lines: hidden and singled out together in all figures of a section --------------------

  const keysOf = (section) => [...new Set(all(".key[data-m]", section).map((k) => k.dataset.m))];

  function draw(section) {
    const { hidden, filtered } = section.lines;
    const shows = (key) => !hidden.has(key) && !filtered.has(key);
    for (const group of all("svg g[data-m]", section)) {
      group.classList.toggle("off", !shows(group.dataset.m));
    }
    for (const entry of all(".key[data-m]", section)) {
      entry.setAttribute("aria-pressed", String(!hidden.has(entry.dataset.m)));
      entry.classList.toggle("off", !shows(entry.dataset.m));
    }
  }

  function toggle(section, key, alone) {
    const { hidden } = section.lines;
    const others = keysOf(section).filter((other) => other !== key);
    if (alone) {
      const isAlone = !hidden.has(key) && others.every((other) => hidden.has(other));
      hidden.clear();
      if (!isAlone) others.forEach((other) => hidden.add(other));
    } else if (!hidden.delete(key)) {
      hidden.add(key);
    }
    draw(section);
  }

  function legend(section) {
    for (const entry of all(".key[data-m]", section)) {
      entry.tabIndex = 0;
      entry.setAttribute("role", "button");
      entry.title = "Click: hide or show. Double click or Shift: this line alone.";
      entry.addEventListener("click", (event) => {
        // The second click of a double click has undone the first.
        if (event.detail <= 2) toggle(section, entry.dataset.m, event.shiftKey || event.detail === 2);
      });
      entry.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle(section, entry.dataset.m, event.shiftKey);
      });
      for (const type of ["pointerenter", "focus"]) {
        entry.addEventListener(type, () => point(section, entry.dataset.m));
      }
      for (const type of ["pointerleave", "blur"]) {
        entry.addEventListener(type, () => point(section, null));
      }
    }
  }

  // Draws all lines but one faintly.
  function point(section, key) {
    for (const group of all("svg g[data-m]", section)) {
      group.classList.toggle("faint", key !== null && group.dataset.m !== key);
    }
  }

  // --- Values under the pointer --------------------------------------------------------------

  const tip = make("div", { className: "tip", hidden: true });
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const REACH = 26; // pixels

  // The titles of a figure by place, measured once after each change of layout.
  function nearest(svg, x, y) {
    let best = null;
    for (const title of svg.querySelectorAll("g.point title, g.seed title, g.cell title")) {
      const group = title.parentNode;
      if (group.closest(".off")) continue;
      for (const mark of group.classList.contains("cell") ? [group] : group.querySelectorAll("circle, path")) {
        const box = mark.getBoundingClientRect();
        if (!box.width) continue;
        const dx = Math.max(box.left - x, 0, x - box.right);
        const dy = Math.max(box.top - y, 0, y - box.bottom);
        const distance = Math.hypot(dx, dy);
        if (distance < REACH && (!best || distance < best.distance)) {
          best = { distance, text: title.dataset.text, box };
        }
      }
    }
    return best;
  }

  function hover(figure) {
    const svg = figure.querySelector("svg.chart");
    // The browser's own tooltips would show beside ours.
    for (const title of svg.querySelectorAll("title")) {
      title.dataset.text = title.textContent;
      title.textContent = "";
    }
    const show = (event) => {
      const found = nearest(svg, event.clientX, event.clientY);
      tip.hidden = !found;
      if (!found) return;
      tip.textContent = found.text;
      const { width, height } = tip.getBoundingClientRect();
      const left = found.box.left + found.box.width / 2 - width / 2;
      const most = document.documentElement.clientWidth - width - 4;
      const above = found.box.top - height - 8;
      tip.style.left = `${Math.max(4, Math.min(left, most))}px`;
      tip.style.top = `${above > 4 ? above : found.box.bottom + 8}px`;
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // --- Tables: sort by a column, mark the row of a line ----------------------------------------

  // The number a cell begins with, and its place after all numbers where it has none.
  function value(cell) {
    const text = (cell.dataset.sort ?? cell.textContent).replace(/[≥,\s]/g, "").replace("−", "-");
    const number = Number.parseFloat(text);
    return Number.isNaN(number) ? null : number;
  }

  function sortBy(table, column, button) {
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    const order = { none: "ascending", ascending: "descending", descending: "none" };
    const next = order[headings[column].getAttribute("aria-sort") ?? "none"];
    headings.forEach((heading) => heading.removeAttribute("aria-sort"));
    if (next !== "none") headings[column].setAttribute("aria-sort", next);
    table.original ??= [...body.rows];
    const sign = next === "descending" ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [a, b].map((row) => value(row.cells[column]));
      if (x !== null && y !== null) return sign * (x - y);
      if (x !== null || y !== null) return x === null ? 1 : -1;
      const [s, t] = [a, b].map((row) => row.cells[column].textContent);
      return sign * s.localeCompare(t, "en", { numeric: true });
    };
    const rows = next === "none" ? table.original : [...table.original].sort(compare);
    body.append(...rows);
    button.focus();
  }

  function sortable(table) {
    if (table.tBodies[0].rows.length < 2) return;
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = make("button", { type: "button", className: "sort" });
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sortBy(table, column, button));
    });
  }

  function rows(section) {
    for (const row of all("tr[data-m]", section)) {
      row.addEventListener("pointerenter", () => point(section, row.dataset.m));
      row.addEventListener("pointerleave", () => point(section, null));
    }
  }

  // --- Controls of a section -------------------------------------------------------------------

  // A metric's panel, and the figures and tables of no metric.
  function showMetric(section, metric) {
    for (const panel of all(".panel", section)) {
      panel.classList.toggle("on", panel.dataset.metric === metric);
    }
    compare(section, section.querySelector("select.baseline")?.value ?? "");
  }

  function showScale(section, scale) {
    for (const scales of all(".scales", section)) {
      const has = all(".scale", scales).some((one) => one.dataset.scale === scale);
      if (!has) continue;
      for (const one of all(".scale", scales)) {
        one.classList.toggle("on", one.dataset.scale === scale);
      }
    }
  }

  // Puts the differences to a baseline in place of the scores; an empty name puts the scores back.
  function compare(section, baseline) {
    const data = section.differences;
    if (!data) return;
    for (const panel of all(".panel", section)) {
      const table = panel.querySelector("table");
      const own = data[panel.dataset.metric];
      const differences = own && baseline ? own[baseline] : null;
      for (const row of table.tBodies[0].rows) {
        const cells = [...row.cells].slice(1);
        row.scores ??= cells.map((cell) => [[...cell.childNodes], cell.className]);
        const of = differences?.[row.dataset.m];
        cells.forEach((cell, at) => {
          if (!differences) {
            cell.replaceChildren(...row.scores[at][0]);
            cell.className = row.scores[at][1];
          } else {
            const text = of?.[at] ?? "";
            cell.className = text.startsWith("*") ? "clear" : "";
            cell.textContent = text.replace(/^\*/, "");
          }
        });
      }
      const note = panel.querySelector(".compared");
      if (note) {
        const name = section.querySelector("select.baseline").selectedOptions[0].textContent;
        note.hidden = !baseline;
        note.textContent = differences
          ? `Now showing: score minus that of ${name}, paired by seed, with 95 % CI. Bold: the interval excludes 0.`
          : "No differences are kept for this metric.";
      }
    }
  }

  function filter(section, text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (name) => words.every((word) => name.toLowerCase().includes(word));
    for (const row of all("table.methods tbody tr", section)) {
      row.hidden = !fits(row.cells[0].textContent);
    }
    section.lines.filtered.clear();
    for (const entry of all(".key[data-m]", section)) {
      if (!fits(entry.textContent)) section.lines.filtered.add(entry.dataset.m);
    }
    draw(section);
  }

  function controls(section) {
    section.lines = { hidden: new Set(), filtered: new Set() };
    const data = section.querySelector("script.differences");
    section.differences = data ? JSON.parse(data.textContent) : null;
    const on = (selector, type, action) => {
      for (const control of all(selector, section)) {
        control.addEventListener(type, () => action(control));
      }
    };
    on("select.metric", "change", (control) => showMetric(section, control.value));
    on("select.scaling", "change", (control) => showScale(section, control.value));
    on("select.baseline", "change", (control) => compare(section, control.value));
    on("select.spread", "change", (control) => section.classList.toggle("seeds", control.value === "seeds"));
    on("input.filter", "input", (control) => filter(section, control.value));
    for (const bar of all(".controls", section)) bar.hidden = false;
    const first = section.querySelector(".panel");
    if (first) showMetric(section, first.dataset.metric);
    // A browser keeps choices when a page is loaded again.
    for (const control of all("select, input", section)) {
      control.dispatchEvent(new Event(control.matches("input") ? "input" : "change"));
    }
  }

  // --- The page --------------------------------------------------------------------------------

  // Opens what the address names: a run, or a setting that is folded away.
  function open() {
    let target = null;
    try {
      target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch {
      return; // no anchor of ours
    }
    for (let at = target; at; at = at.parentElement) {
      if (at instanceof HTMLDetailsElement) at.open = true;
    }
    target?.scrollIntoView();
  }

  // Shows one setting, or all.
  function choose(name) {
    for (const section of all("section.setting")) {
      section.hidden = name !== "" && section.id !== name;
      const fold = section.querySelector(":scope > details");
      if (fold && section.id === name) fold.open = true;
    }
  }

  for (const section of all("section.setting, section.matrix")) {
    controls(section);
    legend(section);
    rows(section);
  }
  all("figure.plot .card").filter((card) => card.querySelector("svg.chart")).forEach((card) => {
    all(".scale", card).forEach(hover);
  });
  all("table.sortable").forEach(sortable);
  const chooser = document.querySelector("select.settings");
  if (chooser) {
    chooser.closest("label").hidden = false;
    chooser.addEventListener("change", () => choose(chooser.value));
    choose(chooser.value);
  }
  for (const button of all("button.copy")) {
    if (!navigator.clipboard) continue; // not from every file
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
    });
  }
  addEventListener("hashchange", open);
  if (location.hash) open();
  addEventListener("beforeprint", () => {
    for (const fold of all("details:not([open])")) {
      if (fold.matches(".run, .run *")) continue;
      fold.open = true;
      fold.dataset.closed = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const fold of all("details[data-closed]")) {
      fold.open = false;
      delete fold.dataset.closed;
    }
  });
})();
