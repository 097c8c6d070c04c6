// Two comforts on pages that work without them: regions marked data-live follow the store, and forms marked
// data-confirm ask once more in a dialog. The server renders everything; this only swaps what it rendered anew.
"use strict";

(() => {
  const TIME = /<time datetime="([^"]*)"[^>]*>[^<]*/g;
  const bare = (html) => html.replace(TIME, "$1"); // 'two minutes ago' moves on by itself: no reason to swap
  const known = new Map();
  for (const region of document.querySelectorAll("[data-live][id]")) known.set(region.id, bare(region.outerHTML));

  let stream = null;
  let due = 0;
  let busy = false;

  function mark(on) {
    const dot = document.getElementById("live");
    if (!dot) return;
    dot.hidden = false;
    dot.dataset.on = on ? "yes" : "no";
    const text = on ? "live" : "not live";
    if (dot.textContent !== text) dot.textContent = text;
  }

  function swap(old, fresh) {
    const open = [...old.querySelectorAll("details")].map((one) => one.open);
    fresh.querySelectorAll("details").forEach((one, at) => { if (open[at]) one.open = true; });
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const path = focus && (focus.getAttribute("href") || focus.id);
    old.replaceWith(fresh);
    if (path) {
      const again = [...fresh.querySelectorAll("a, [id]")].find((one) => (one.getAttribute("href") || one.id) === path);
      if (again) again.focus({ preventScroll: true });
    }
  }

  function writing(region) { // never take a form away from under somebody's hands
    const at = document.activeElement;
    return region.contains(at) && at.matches("input, select, textarea, button") || region.querySelector("input:checked");
  }

  async function refresh() {
    if (busy) { later(500); return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live][id]")) {
        const fresh = page.getElementById(old.id);
        if (!fresh) continue;
        const html = bare(fresh.outerHTML);
        if (known.get(old.id) !== html) {
          if (writing(old)) continue;
          known.set(old.id, html);
          swap(old, document.importNode(fresh, true));
        } else {
          const times = fresh.querySelectorAll("time");
          old.querySelectorAll("time").forEach((one, at) => {
            if (times[at] && times[at].textContent !== one.textContent) one.textContent = times[at].textContent;
          });
        }
      }
      mark(stream !== null && stream.readyState === EventSource.OPEN);
    } catch {
      mark(false);
    } finally {
      busy = false;
    }
  }

  function later(wait) {
    clearTimeout(due);
    due = setTimeout(refresh, wait);
  }

  function listen() {
    if (stream || document.hidden) return;
    stream = new EventSource("/api/v1/events");
    stream.addEventListener("open", () => mark(true));
    stream.addEventListener("change", () => later(150));
    stream.addEventListener("error", () => {
      mark(false);
      if (stream && stream.readyState === EventSource.CLOSED) { // refused: too many streams, or the server is gone
        stream = null;
        setTimeout(listen, 15000);
      }
    });
  }

  // A browser keeps six connections to a host: tabs that nobody looks at give theirs back.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      if (stream) stream.close();
      stream = null;
    } else {
      listen();
      later(0);
    }
  });

  function ask(form) {
    const dialog = document.createElement("dialog");
    const part = (name, text, into) => into.appendChild(Object.assign(document.createElement(name), { textContent: text }));
    const title = part("h2", form.dataset.confirm, dialog);
    title.id = "confirm-title";
    dialog.setAttribute("aria-labelledby", title.id);
    part("p", form.dataset.confirmText, dialog);
    const row = part("div", "", dialog);
    row.className = "row-form";
    const no = part("button", "Not now", row);
    const yes = part("button", form.dataset.confirmGo, row);
    yes.className = "main";
    no.addEventListener("click", () => dialog.close());
    yes.addEventListener("click", () => {
      yes.disabled = no.disabled = true;
      form.dataset.confirmed = "yes";
      form.requestSubmit();
    });
    dialog.addEventListener("close", () => dialog.remove());
    document.body.appendChild(dialog);
    dialog.showModal();
    no.focus();
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.confirm || form.dataset.confirmed) return;
    event.preventDefault();
    ask(form);
  });

  if (document.querySelector("[data-live]")) {
    listen();
    setInterval(() => { if (!document.hidden) refresh(); }, 30000);
  }
})();
