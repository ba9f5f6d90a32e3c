// Building DOM nodes. Text goes in as text nodes, never as markup.

// element('button', {class: 'quiet', onclick: f, 'aria-label': 'Stop'}, child, 'text', ...). A property whose value is
// null, undefined or false is left out.
export function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) {
      node.addEventListener(key.slice(2), value);
    } else {
      node.setAttribute(key, value === true ? '' : value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const byId = (id) => document.getElementById(id);

// Says something to screen readers without moving the focus.
export function announce(text) {
  byId('announcer').textContent = text;
}

// Copies text and shows for a moment, on the button, that it did.
export async function copyFrom(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Not allowed';
  }
  setTimeout(() => (button.textContent = label), 1200);
}
