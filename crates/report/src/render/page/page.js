// The script of a report's page. The page stands without it: every table and figure is in the
// markup, and runs are in a table. The script selects among them (metric, scale, seeds, baseline),
// hides and singles out lines, sorts and filters rows, shows values under the pointer, and draws
// runs from their data. It loads nothing and writes text only as text.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const svgOf = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
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

  // An axis from its attribute: scale, low end, high end.
  const axis = (text) => {
    const [scale, low, high] = text.split(" ");
    return { isLog: scale === "log", low: Number(low), high: Number(high) };
  };
  const valueAt = ({ isLog, low, high }, share) =>
    isLog ? low * (high / low) ** share : low + share * (high - low);
  const shareOf = ({ isLog, low, high }, value) =>
    isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const short = (value) => String(Number(value.toPrecision(3)));

  // The places of a shape; a single one is written twice.
  function places(shape) {
    const points = [...shape.points];
    const [first, second] = points;
    const isOne = points.length === 2 && first.x === second.x && first.y === second.y;
    return isOne ? [first] : points;
  }

  // What a figure says of one point of one of its lines.
  function told(svg, group, index, place) {
    const figure = svg.closest("figure");
    const name = figure.querySelector(`.key[data-m="${group.dataset.m}"]`)?.textContent ?? "";
    const tip = group.dataset.t?.split("|")[index];
    if (tip) {
      const space = tip.indexOf(" ");
      const at = svg.dataset.p.split("|")[tip.slice(0, space)];
      return `${name}, ${at}: ${tip.slice(space + 1)}`;
    }
    const [left, right, top, bottom] = svg.dataset.box.split(" ").map(Number);
    const y = axis(svg.classList.contains("rescaled") ? svg.dataset.other : svg.dataset.y);
    const x = valueAt(axis(svg.dataset.x), (place.x - left) / (right - left));
    const value = valueAt(y, (bottom - place.y) / (bottom - top));
    const of = svg.dataset.of.split(" (")[0];
    const seed = group.dataset.s ? `, ${group.dataset.s}` : "";
    return `${name}${seed}, ${of} ${short(x)}: about ${short(value)}`;
  }

  // A cell by its matrix, row and column; its number follows it.
  function ofCell(svg, part) {
    const cell = part.matches("rect") ? part : part.previousElementSibling;
    const [rows, columns] = [svg.dataset.r, svg.dataset.c].map((all) => all.split("|"));
    const index = [...cell.parentNode.querySelectorAll("rect")].indexOf(cell);
    const [row, column] = [rows[Math.floor(index / columns.length)], columns[index % columns.length]];
    const number = cell.nextElementSibling;
    const value = number?.matches("text") ? number.textContent : "no number";
    const of = [cell.parentNode.dataset.g, row, column].filter(Boolean).join(", ");
    return { text: `${of}: ${value}`, box: cell.getBoundingClientRect() };
  }

  // The point of a line, or the cell, that is nearest to the pointer.
  function nearest(svg, event) {
    const cell = event.target.closest?.("g.cells > *");
    if (cell) return ofCell(svg, cell);
    if (!svg.dataset.box) return null;
    const matrix = svg.getScreenCTM();
    const pointer = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const kinds = svg.closest(".seeds") ? "g.seed" : svg.dataset.p ? "g.point" : "g.line";
    let best = null;
    for (const group of svg.querySelectorAll(kinds)) {
      if (group.classList.contains("off")) continue;
      let index = 0;
      for (const shape of group.children) {
        for (const place of places(shape)) {
          const distance = Math.hypot(place.x - pointer.x, place.y - pointer.y) * matrix.a;
          if (distance < REACH && (!best || distance < best.distance)) {
            best = { distance, group, index, place };
          }
          index += 1;
        }
      }
    }
    if (!best) return null;
    const { x, y } = new DOMPoint(best.place.x, best.place.y).matrixTransform(matrix);
    const box = { left: x, width: 0, top: y - 5, bottom: y + 5 };
    return { text: told(svg, best.group, best.index, best.place), box };
  }

  function hover(svg) {
    const show = (event) => {
      const found = nearest(svg, event);
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

  // Draws the lines of the seeds from their letters, once: for each column its height, or none.
  function drawSeeds(section) {
    for (const line of all("svg.chart g.line[data-s]", section)) {
      const svg = line.closest("svg");
      const [, , top, bottom] = svg.dataset.box.split(" ").map(Number);
      const columns = svg.dataset.c.split(" ");
      const height = (pair) => {
        const level = LEVELS.indexOf(pair[0]) * 64 + LEVELS.indexOf(pair[1]);
        return bottom - (level / 4095) * (bottom - top);
      };
      for (const one of line.dataset.s.split("|")) {
        const [seed, letters] = one.split(" ");
        // A column without a number parts the line.
        const parts = [[]];
        columns.forEach((x, at) => {
          const pair = letters.slice(2 * at, 2 * at + 2);
          if (pair === "..") parts.push([]);
          else parts.at(-1).push(`${x},${height(pair)}`);
        });
        const shapes = parts.filter((part) => part.length);
        const name = [...line.classList].filter((c) => c !== "line").join(" ");
        const group = svgOf("g", { class: `seed ${name} ${svg.dataset.dots ? "dots" : ""}` });
        group.dataset.m = line.dataset.m;
        group.dataset.s = `seed ${seed}`;
        for (const part of shapes) {
          const points = part.length === 1 ? [part[0], part[0]] : part;
          group.append(svgOf("polyline", { points: points.join(" ") }));
        }
        line.after(group);
      }
      delete line.dataset.s;
    }
  }

  function showSeeds(section, isShown) {
    if (isShown) drawSeeds(section);
    section.classList.toggle("seeds", isShown);
    draw(section);
    const scale = section.querySelector("select.scaling")?.value;
    if (scale) showScale(section, scale);
  }

  // Names at the ends of lines, as near to them as they can stand: pushed down, pushed up, and the
  // middle of both, inside the axes.
  function nameEnds(svg, top, bottom) {
    const end = ([lead, text]) => ({ lead: lead.points.getItem(1), text, y: lead.points.getItem(0).y });
    const ends = all("g.end", svg).map((group) => end(group.children)).sort((a, b) => a.y - b.y);
    const STEP = 15;
    const pushed = (heights, from) => {
      let last = from - STEP;
      return heights.map((y) => (last = Math.max(y, last + STEP)));
    };
    const pulled = (heights, to) => pushed(heights.map((y) => -y).reverse(), -to).map((y) => -y).reverse();
    const own = ends.map(({ y }) => y);
    const [down, up] = [pushed(own, -Infinity), pulled(own, Infinity)];
    const inside = pulled(pushed(down.map((y, i) => (y + up[i]) / 2), top), bottom);
    ends.forEach(({ lead, text }, i) => {
      lead.y = inside[i];
      text.setAttribute("y", inside[i] + 4.2);
    });
  }

  // Moves what is drawn to the other scale of y, or back.
  function showScale(section, scale) {
    for (const svg of all("svg.chart[data-other]", section)) {
      const [own, other] = [svg.dataset.y, svg.dataset.other].map(axis);
      const isOther = own.isLog !== (scale === "log");
      const [, , top, bottom] = svg.dataset.box.split(" ").map(Number);
      svg.classList.toggle("rescaled", isOther);
      const moved = (height) => {
        const share = shareOf(other, valueAt(own, (bottom - height) / (bottom - top)));
        return bottom - Math.min(1, Math.max(0, share || 0)) * (bottom - top);
      };
      for (const shape of svg.querySelectorAll("g[data-m] > :not(text), g.ref > *")) {
        shape.heights ??= [...shape.points].map((point) => point.y);
        shape.heights.forEach((height, at) => {
          shape.points.getItem(at).y = isOther ? moved(height) : height;
        });
      }
      nameEnds(svg, top, bottom);
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
    const words = text.toLowerCase().split(/[\s_]+/).filter(Boolean);
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
    on("select.spread", "change", (control) => showSeeds(section, control.value === "seeds"));
    on("input.filter", "input", (control) => filter(section, control.value));
    for (const bar of all(".controls", section)) bar.hidden = false;
    const first = section.querySelector(".panel");
    if (first) showMetric(section, first.dataset.metric);
    // A browser keeps choices when a page is loaded again.
    for (const control of all("select, input", section)) {
      control.dispatchEvent(new Event(control.matches("input") ? "input" : "change"));
    }
  }

  // --- Runs, drawn when they are opened --------------------------------------------------------

  // A curve from the letters of its heights, with the numbers at the ends of its axes.
  function curve([name, of, first, last, low, high, letters], text) {
    const [width, height, left] = [190, 70, 52];
    const step = width / (letters.length - 1);
    const at = (letter, i) => `${left + i * step},${4 + height * (1 - LEVELS.indexOf(letter) / 63)}`;
    const label = (x, y, anchor, words) => svgOf("text", { x, y, "text-anchor": anchor }, words);
    const drawing = svgOf(
      "svg",
      { width: left + width + 8, height: height + 20, role: "img", "aria-label": text(name) },
      svgOf("polyline", { points: [...letters].map(at).join(" "), stroke: "var(--s0)" }),
      label(left - 4, 12, "end", high),
      label(left - 4, height + 4, "end", low),
      label(left, height + 18, "start", first),
      label(left + width, height + 18, "end", `${text(of)} ${last}`),
    );
    return make("figure", {}, make("figcaption", { textContent: text(name) }), drawing);
  }

  function scoresOf([head, ...rows], text) {
    const line = (cells, first, other) => {
      const cell = (content, at) => make(at ? other : first, { textContent: text(content) });
      return make("tr", {}, ...cells.map(cell));
    };
    const body = make("tbody", {}, ...rows.map((row) => line(row, "th", "td")));
    const table = make("table", {}, make("thead", {}, line(head, "th", "th")), body);
    return make("div", { className: "scroll" }, table);
  }

  function copier(of) {
    if (!navigator.clipboard) return ""; // not from every file
    const button = make("button", { type: "button", textContent: "copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(of.textContent);
      button.textContent = "copied";
    });
    return button;
  }

  function fill(place, run, text) {
    const list = make("dl");
    const fact = (name, ...values) => {
      list.append(make("dt", { textContent: name }), make("dd", {}, ...values));
    };
    if (!run.facts.some(([name]) => text(name) === "run")) fact("run", run.id.slice("run-".length));
    for (const [name, value] of run.facts) fact(text(name), text(value));
    if (run.command) {
      const code = make("code", { textContent: run.command.map(text).join("") });
      fact("train it again, from the directory of this page", code, " ", copier(code));
    }
    if (run.link) fact("files", make("a", { href: run.link, textContent: "its directory" }));
    place.append(list);
    if (run.scores) place.append(scoresOf(run.scores, text));
    const curves = (run.curves ?? []).map((one) => curve(one, text));
    if (curves.length) place.append(make("div", { className: "curves" }, ...curves));
  }

  // Lists the runs of a setting, once.
  function list(runs) {
    const data = runs.querySelector("script.data");
    if (!data) return;
    data.remove();
    const { texts, runs: each } = JSON.parse(data.textContent);
    const text = (of) => (typeof of === "number" ? texts[of] : of);
    const one = (run) => {
      const place = make("div", { id: run.id });
      const summary = make("summary", { textContent: run.name });
      const fold = make("details", { className: "run" }, summary, place);
      fold.addEventListener("toggle", () => { if (!place.firstChild) fill(place, run, text); });
      return fold;
    };
    runs.append(...each.map(one));
  }

  // --- The page --------------------------------------------------------------------------------

  // Opens what the address names: a run, or a setting that is folded away.
  function open() {
    let name = "";
    try {
      name = decodeURIComponent(location.hash.slice(1));
    } catch {
      return; // no anchor of ours
    }
    // Runs are not there before they are listed.
    if (name.startsWith("run-")) all("details.runs").forEach(list);
    const target = document.getElementById(name);
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
  all("svg.chart").forEach(hover);
  for (const runs of all("details.runs")) runs.addEventListener("toggle", () => list(runs));
  all("table.sortable").forEach(sortable);
  const chooser = document.querySelector("select.settings");
  if (chooser) {
    chooser.closest("label").hidden = false;
    chooser.addEventListener("change", () => choose(chooser.value));
    choose(chooser.value);
  }
  addEventListener("hashchange", open);
  if (location.hash) open();
  addEventListener("beforeprint", () => {
    for (const fold of all("details:not([open])")) {
      if (fold.matches(".runs, .runs *")) continue;
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
