"use strict";
// Extras over the page that is complete without them: theme, hiding and marking policies, read-outs.
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  root.classList.add("js");

  const theme = document.getElementById("theme");
  const wanted = new URLSearchParams(location.hash.slice(1)).get("theme");
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });

  const marked = all("[data-p]");
  const hidden = new Set();
  const show = () => {
    for (const part of marked) part.classList.toggle("hide", hidden.has(part.dataset.p));
  };
  const point = (key) => {
    for (const part of marked) part.classList.toggle("dim", key !== null && part.dataset.p !== key);
  };
  for (const chip of all("[data-toggle]")) {
    const key = chip.dataset.toggle;
    chip.title = "Click: hide or show in all charts. Double click: only this one.";
    chip.addEventListener("click", () => {
      if (!hidden.delete(key)) hidden.add(key);
      chip.setAttribute("aria-pressed", String(!hidden.has(key)));
      show();
    });
    chip.addEventListener("dblclick", () => {
      const keys = all("[data-toggle]").map((other) => other.dataset.toggle);
      const isAlone = keys.every((other) => other === key || hidden.has(other));
      hidden.clear();
      if (!isAlone) for (const other of keys) if (other !== key) hidden.add(other);
      for (const other of all("[data-toggle]"))
        other.setAttribute("aria-pressed", String(!hidden.has(other.dataset.toggle)));
      show();
    });
    chip.addEventListener("mouseenter", () => point(hidden.has(key) ? null : key));
    chip.addEventListener("mouseleave", () => point(null));
    chip.addEventListener("focus", () => point(hidden.has(key) ? null : key));
    chip.addEventListener("blur", () => point(null));
  }
  for (const name of all(".ends [data-p], .row[data-p] .who")) {
    const key = name.closest("[data-p]").dataset.p;
    name.addEventListener("mouseenter", () => point(key));
    name.addEventListener("mouseleave", () => point(null));
  }

  const digits = (value) => {
    const size = Math.abs(value);
    if (size >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
    if (size >= 1e4) return `${(value / 1e3).toFixed(0)} k`;
    return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
  };
  const said = (value, unit) => {
    if (unit === "s") return value < 1 ? `${(value * 1000).toFixed(0)} ms` : `${digits(value)} s`;
    if (unit === "min") return `${(value / 60).toFixed(1)} min`;
    if (unit === "%") return `${+(value * 100).toFixed(2)} %`;
    return digits(value);
  };
  const axis = (spec) => {
    const [kind, low, high, unit] = spec.split(" ");
    const warp = { linear: (v) => v, log: Math.log10, nines: (v) => -Math.log10(Math.max(1 - v, 1e-3)) }[kind];
    const back = { linear: (v) => v, log: (v) => 10 ** v, nines: (v) => 1 - 10 ** -v }[kind];
    const [from, to] = [warp(+low), warp(+high)];
    return (share) => said(back(from + share * (to - from)), unit);
  };
  const points = (path) => {
    const found = [];
    let [x, y] = [0, 0];
    for (const [, command, dx, dy] of path.matchAll(/([Ml])(-?\d+)[ ]?(-?\d+)/g)) {
      [x, y] = command === "M" ? [+dx, +dy] : [x + +dx, y + +dy];
      found.push({ x, y, isStart: command === "M" });
    }
    return found;
  };
  const height = (found, x) => {
    for (let n = 1; n < found.length; n += 1) {
      const [one, other] = [found[n - 1], found[n]];
      if (!other.isStart && one.x <= x && x <= other.x)
        return other.x === one.x ? other.y : one.y + ((other.y - one.y) * (x - one.x)) / (other.x - one.x);
    }
    return null;
  };
  const make = (tag, kind, text = "") => {
    const made = document.createElement(tag);
    made.className = kind;
    made.textContent = text;
    return made;
  };

  for (const plot of all(".plot[data-x]")) {
    const area = plot.querySelector(".area");
    const [x, y] = [axis(plot.dataset.x), axis(plot.dataset.y)];
    const lines = all("g[data-p]", area).map((part) => ({
      part,
      points: points(part.querySelector(".line")?.getAttribute("d") ?? ""),
    }));
    let [cross, box, share] = [null, null, 0.5];
    const leave = () => {
      cross?.remove();
      box?.remove();
      cross = box = null;
    };
    const read = () => {
      leave();
      const rows = lines
        .filter(({ part }) => !part.classList.contains("hide"))
        .map(({ part, points: found }) => ({ part, y: height(found, share * 1000) }))
        .filter((row) => row.y !== null)
        .sort((one, other) => one.y - other.y);
      if (!rows.length) return;
      cross = make("div", "cross");
      cross.style.left = `${share * 100}%`;
      box = make("div", "read");
      box.setAttribute("role", "status");
      box.append(make("b", "", x(share)));
      for (const row of rows) {
        const line = make("div", row.part.getAttribute("class").replace(/\b(dim|hide)\b/g, ""));
        line.append(make("i", "swatch"), make("b", "", row.part.dataset.n), make("span", "", y(1 - row.y / 1000)));
        box.append(line);
      }
      area.append(cross, box);
      const room = area.clientWidth;
      const left = share * room;
      const isLeft = left + box.offsetWidth + 14 > room && left > room / 2;
      box.style.left = `${isLeft ? Math.max(-40, left - box.offsetWidth - 12) : left + 12}px`;
    };
    area.addEventListener("pointermove", (event) => {
      const place = area.getBoundingClientRect();
      share = Math.min(1, Math.max(0, (event.clientX - place.left) / place.width));
      read();
    });
    area.addEventListener("pointerleave", leave);
    plot.addEventListener("blur", leave);
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
      if (event.key === "Escape") leave();
      if (step === undefined) return;
      event.preventDefault();
      share = Math.min(1, Math.max(0, share + step));
      read();
    });
  }

  for (const area of all(".area[data-rows]")) {
    const names = area.dataset.rows.split("|");
    const words = area.dataset.said.split("|");
    const columns = area.querySelector("svg").viewBox.baseVal.width;
    let cells = null;
    const parse = () => {
      cells = names.map(() => []);
      for (const path of all("path[data-v]", area))
        for (const [, x, y, run] of path.getAttribute("d").matchAll(/M(\d+) (\d+)\.5h(\d+)/g))
          for (let n = 0; n < +run; n += 1) cells[+y][+x + n] = words[+path.dataset.v];
    };
    let box = null;
    area.addEventListener("pointermove", (event) => {
      if (!cells) parse();
      const place = area.getBoundingClientRect();
      const column = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - place.left) / place.width) * columns)));
      const row = Math.min(names.length - 1, Math.max(0, Math.floor(((event.clientY - place.top) / place.height) * names.length)));
      box?.remove();
      const minutes = (column * +area.dataset.step) / 60;
      box = make("div", "read", `${names[row]}, ${minutes.toFixed(1)} min: ${cells[row][column] ?? "not in service"}`);
      area.append(box);
      const left = event.clientX - place.left;
      box.style.left = `${left + box.offsetWidth + 14 > place.width ? Math.max(0, left - box.offsetWidth - 12) : left + 12}px`;
      box.style.top = `${Math.min(place.height - 20, event.clientY - place.top + 12)}px`;
    });
    area.addEventListener("pointerleave", () => box?.remove());
  }
})();
