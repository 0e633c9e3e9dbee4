// Light, dark, or as the system has it.

const KEY = "devicemanager-theme";

/** Have `select` choose; `changed` is called whenever colours are other ones. */
export function themes(select, changed) {
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    changed();
  };
  const kept = read();
  select.value = [...select.options].some((option) => option.value === kept) ? kept : "auto";
  set(select.value);
  select.addEventListener("change", () => {
    write(select.value);
    set(select.value);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  matchMedia("(forced-colors: active)").addEventListener("change", changed);
}

// A browser may reject to keep anything.
function read() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function write(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The switch works all the same, until the page is loaded again.
  }
}
