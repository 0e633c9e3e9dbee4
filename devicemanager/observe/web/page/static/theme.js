// The theme: light, dark, or that of the system.

const KEY = "devicemanager-theme";

/** Let `select` choose the theme; call `changed` whenever the colours change. */
export function themes(select, changed) {
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    changed();
  };
  const stored = read();
  select.value = [...select.options].some((option) => option.value === stored) ? stored : "auto";
  set(select.value);
  select.addEventListener("change", () => {
    write(select.value);
    set(select.value);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  matchMedia("(forced-colors: active)").addEventListener("change", changed);
}

// A browser may be set to store no data.
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
    // The choice still works until the page is reloaded.
  }
}
