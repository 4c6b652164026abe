"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("has-script");

  const element = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const say = (text) => { document.getElementById("status").textContent = text; };

  // Light and dark: the reader's choice goes before that of the system, and is kept where the browser can keep it.
  const theme = document.getElementById("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("commitlake-theme"); } catch { return null; } };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
  const showTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
  showTheme();
  systemDark.addEventListener("change", showTheme);
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("commitlake-theme", root.dataset.theme); } catch { /* it is kept until the page goes */ }
    showTheme();
  });

  // Commands to copy.
  const copyText = async (code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch {
      getSelection().selectAllChildren(code);
      return document.execCommand("copy");
    }
  };
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const isCopied = await copyText(button.parentElement.querySelector("code"));
      button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
      say(isCopied ? "The command is copied." : "The command is selected.");
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // Tables: search, sort, and a first part of many rows.
  for (const table of document.querySelectorAll("table.cards")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const most = Number(table.dataset.shown);
    let isWhole = rows.length <= most;
    let ordered = rows;

    const count = element("span", "", { class: "count", role: "status" });
    const more = element("button", "", { type: "button" });
    const search = element("input", "", {
      type: "search", placeholder: "Search", "aria-label": `Search: ${table.caption.textContent}`,
    });
    const show = () => {
      const wanted = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
      const found = ordered.filter((row) => wanted.every((word) => texts.get(row).includes(word)));
      const shown = new Set(isWhole ? found : found.slice(0, most));
      for (const row of rows) row.hidden = !shown.has(row);
      count.textContent = `${shown.size.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
      more.hidden = shown.size === found.length;
      more.textContent = `Show all ${found.length.toLocaleString("en")}`;
    };
    const valueOf = (row, place, isNumber) => {
      const cell = row.cells[place];
      if (!isNumber) return cell.textContent.toLowerCase();
      return cell.dataset.order === undefined ? null : Number(cell.dataset.order);
    };
    const sort = (place, isDescending) => {
      const isNumber = heads[place].dataset.sort === "number";
      const direction = isDescending ? -1 : 1;
      ordered = [...rows].sort((a, b) => {
        const [one, other] = [valueOf(a, place, isNumber), valueOf(b, place, isNumber)];
        if (one === null || other === null) return (one === null) - (other === null);
        return direction * (isNumber ? one - other : one < other ? -1 : Number(one > other));
      });
      body.append(...ordered);
      heads.forEach((head, at) => {
        if (at === place) head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      show();
    };

    const chooser = element("select", "", { class: "narrow", "aria-label": "Sort by" });
    chooser.append(element("option", "Sort by …", { value: "" }));
    heads.forEach((head, place) => {
      if (!head.dataset.sort) return;
      const title = head.textContent;
      const button = element("button", title, { type: "button" });
      head.replaceChildren(button);
      const isNumber = head.dataset.sort === "number";
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        sort(place, now ? now === "ascending" : isNumber);
      });
      const words = isNumber ? ["largest first", "smallest first"] : ["A to Z", "Z to A"];
      words.forEach((word, second) => {
        chooser.append(element("option", `${title}, ${word}`, { value: `${place} ${(second === 0) === isNumber}` }));
      });
    });
    chooser.addEventListener("change", () => {
      if (!chooser.value) return;
      const [place, isDescending] = chooser.value.split(" ");
      sort(Number(place), isDescending === "true");
    });
    search.addEventListener("input", show);
    more.addEventListener("click", () => { isWhole = true; show(); });
    if (rows.length > 1) {
      const tools = element("div", "", { class: "tools" });
      tools.append(search, chooser, count);
      table.before(tools);
      table.after(more);
    }
    show();
  }

  // Charts: a cursor, moved by pointer or by arrow keys, that reads the numbers from the chart's table.
  for (const plot of document.querySelectorAll("[data-plot]")) {
    const figure = plot.closest("figure");
    const table = figure.querySelector("table");
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const rows = [...table.tBodies[0].rows];
    const readout = figure.querySelector(".readout");
    const cursor = plot.querySelector(".cursor");
    readout.textContent = "Point at the chart, or focus it and use the arrow keys, to read its numbers.";
    let at = rows.length - 1;
    const show = (place) => {
      at = Math.min(Math.max(place, 0), rows.length - 1);
      const cells = [...rows[at].cells].map((cell) => cell.textContent);
      const wanted = plot.dataset.series === undefined ? null : Number(plot.dataset.series) + 1;
      const told = names.map((name, column) => [name, cells[column], column]).slice(1)
        .filter(([, value, column]) => value && (wanted === null || column === wanted))
        .map(([name, value]) => `${name} ${value}`);
      readout.textContent = `${cells[0]} UTC: ${told.join(" · ")}`;
      readout.classList.add("is-set");
      if (cursor) {
        const x = `${100 * Number(rows[at].dataset.x)}%`;
        cursor.setAttribute("x1", x);
        cursor.setAttribute("x2", x);
        cursor.style.visibility = "visible";
      }
    };
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      show(Math.floor(((event.clientX - box.left) / box.width) * rows.length));
    });
    plot.addEventListener("focus", () => show(at));
    plot.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -rows.length, End: rows.length, PageUp: -10, PageDown: 10 };
      if (!(event.key in steps)) return;
      event.preventDefault();
      show(at + steps[event.key]);
    });
  }

  // Stories: a step that is chosen, by pointer or by keys, shows its details beside the graph, and its message's lines.
  const panel = document.querySelector(".panel");
  const links = [...document.querySelectorAll(".step > a")];
  if (panel && links.length) {
    const picture = panel.closest("figure");
    const linkOf = new Map(links.map((link) => [link.dataset.row, link]));
    let chosen = null;
    const focusable = (link) => {
      for (const other of links) other.tabIndex = other === link ? 0 : -1;
    };
    const mark = (link) => {
      for (const other of picture.querySelectorAll(".is-on, .is-chosen")) other.classList.remove("is-on", "is-chosen");
      picture.classList.toggle("has-chosen", link !== null);
      if (chosen) chosen.removeAttribute("aria-current");
      chosen = link;
      if (link === null) return;
      link.setAttribute("aria-current", "true");
      link.classList.add("is-chosen");
      for (const part of picture.querySelectorAll(`svg [data-message="${link.dataset.message}"]`)) part.classList.add("is-on");
    };
    const choose = (row) => {
      const link = linkOf.get(row);
      const details = document.getElementById(`step-${row}`);
      if (!link || !details) return;
      mark(link);
      focusable(link);
      const title = details.closest("details").querySelector("summary").textContent;
      panel.querySelector(".panel-title").textContent = title;
      panel.querySelector(".panel-body").replaceChildren(...details.cloneNode(true).childNodes);
      panel.hidden = false;
      panel.scrollTop = 0;
      link.scrollIntoView({ block: "nearest" });
      try { history.replaceState(null, "", `#step-${row}`); } catch { /* the address stays as it is */ }
      say(`Step ${title}`);
    };
    const close = () => {
      const before = chosen;
      panel.hidden = true;
      mark(null);
      if (before) before.focus();
    };
    document.addEventListener("click", (event) => {
      const target = event.target.closest("[data-row]");
      if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      choose(target.dataset.row);
    });
    panel.querySelector(".panel-close").addEventListener("click", close);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !panel.hidden) close();
    });
    picture.querySelector(".graph").addEventListener("keydown", (event) => {
      const steps = { ArrowUp: -1, ArrowDown: 1, Home: -links.length, End: links.length, PageUp: -10, PageDown: 10 };
      const at = links.indexOf(event.target);
      if (at < 0 || !(event.key in steps)) return;
      event.preventDefault();
      const link = links[Math.min(Math.max(at + steps[event.key], 0), links.length - 1)];
      focusable(link);
      link.focus();
      if (!panel.hidden) choose(link.dataset.row);
    });
    focusable(links[0]);
    const asked = location.hash.match(/^#step-([0-9]{1,6})$/);
    if (asked) choose(asked[1]);
  }
})();
