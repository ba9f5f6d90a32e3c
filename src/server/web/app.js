// The page: views, colours, the server's state, the keyboard.
import { request } from './api.js';
import { newConversation, startChat, stop } from './chat.js';
import { byId } from './dom.js';
import { redrawEngine, showEngine, startEngine } from './engine.js';
import { openSettings, setModels, startSettings } from './settings.js';

const HEALTH_SECONDS = 10;

// --- Views ---------------------------------------------------------------------------------------------------------

const views = ['chat', 'engine'];

function showView(name) {
  for (const view of views) {
    const chosen = view === name;
    byId(`view-${view}`).hidden = !chosen;
    byId(`tab-${view}`).setAttribute('aria-selected', String(chosen));
    byId(`tab-${view}`).tabIndex = chosen ? 0 : -1;
  }
  document.body.dataset.view = name;
  history.replaceState(null, '', name === 'chat' ? location.pathname : `#${name}`);
  showEngine(name === 'engine');
  if (name === 'chat') byId('prompt').focus();
}

function startViews() {
  for (const view of views) {
    const tab = byId(`tab-${view}`);
    tab.addEventListener('click', () => showView(view));
    tab.addEventListener('keydown', (event) => {
      if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
      const other = views[1 - views.indexOf(view)];
      showView(other);
      byId(`tab-${other}`).focus();
    });
  }
  showView(location.hash === '#engine' ? 'engine' : 'chat');
}

// --- Colours -------------------------------------------------------------------------------------------------------

const THEME = 'folio.theme';
const themes = ['auto', 'light', 'dark'];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME, theme);
  const name = theme[0].toUpperCase() + theme.slice(1);
  byId('toggle-theme').textContent = name;
  byId('toggle-theme').title = theme === 'auto' ? 'Colours: as the system' : `Colours: ${theme}`;
  redrawEngine();
}

function startTheme() {
  const kept = localStorage.getItem(THEME);
  setTheme(themes.includes(kept) ? kept : 'auto');
  byId('toggle-theme').addEventListener('click', () => {
    setTheme(themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length]);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawEngine);
}

// --- The server ----------------------------------------------------------------------------------------------------

function setStatus(state, text) {
  byId('status').dataset.state = state;
  byId('status-text').textContent = text;
}

let known = false;  // whether the list of models has been read
let asked = false;  // whether a key has been asked for: once unasked, then when something is sent

async function checkServer() {
  try {
    await request('health', { ask: false });
    if (!known) {
      const ask = !asked;
      asked = true;
      const { data } = await (await request('v1/models', { ask })).json();
      setModels(data);
      known = true;
      byId('status-text').title = data.map(({ id }) => id).join(', ');
    }
    setStatus('ready', byId('settings-form').elements.model.value || 'ready');
  } catch (error) {
    setStatus('down', error.status === 401 ? 'key needed' : error.status === 503 ? 'not ready' : 'unreachable');
  }
}

function startServer() {
  checkServer();
  setInterval(() => document.hidden || checkServer(), 1000 * HEALTH_SECONDS);
  document.addEventListener('visibilitychange', () => document.hidden || checkServer());
}

// --- The keyboard --------------------------------------------------------------------------------------------------

const SHORTCUTS = {
  1: () => showView('chat'),
  2: () => showView('engine'),
  n: () => (showView('chat'), newConversation()),
  s: () => (showView('chat'), openSettings()),
};

function onKey(event) {
  if (document.querySelector('dialog[open]')) return;
  const typing = event.target.closest('input, textarea, select');
  const shortcut = event.altKey && !event.ctrlKey && !event.metaKey && SHORTCUTS[event.code.replace(/^(Digit|Key)/, '').toLowerCase()];
  if (shortcut) {
    shortcut();
  } else if (event.key === 'Escape') {
    if (document.body.classList.contains('running')) stop();
    else if (!byId('settings').hidden) openSettings(false);
    else return;
  } else if (event.key === '/' && !typing) {
    showView('chat');
  } else if (event.key === '?' && !typing) {
    byId('help-dialog').showModal();
  } else {
    return;
  }
  event.preventDefault();
}

startTheme();
startSettings();
startChat();
startEngine();
startViews();
startServer();
byId('show-help').addEventListener('click', () => byId('help-dialog').showModal());
document.addEventListener('keydown', onKey);
