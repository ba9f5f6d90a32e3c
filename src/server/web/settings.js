// The settings form: what it holds is kept in the browser and becomes the fields of a request.
import { byId, element } from './dom.js';

const STORE = 'folio.settings';
const DEFAULTS = {
  model: '', system: '', thinking: true, effort: 75, temperature: 1, top_p: 1, top_k: '', min_p: '',
  presence_penalty: '', frequency_penalty: '', max_tokens: '', seed: '', stop: '', tools: '',
};
const EFFORT_NAMES = { 50: 'low', 75: 'high', 100: 'max' };
const OPTIONAL_NUMBERS = ['top_k', 'min_p', 'presence_penalty', 'frequency_penalty', 'max_tokens', 'seed'];

const form = byId('settings-form');
let contexts = new Map();  // model -> tokens of its context

function stored() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(STORE) ?? '{}') };
  } catch {
    return { ...DEFAULTS };
  }
}

// The model is left alone: its choices come from the server.
function fill(values) {
  for (const [name, value] of Object.entries(values)) {
    if (name === 'model') continue;
    const field = form.elements[name];
    if (field.type === 'checkbox') field.checked = value;
    else field.value = value;
  }
  showValues();
}

function showValues() {
  const effort = form.elements.effort.value;
  form.elements['effort-shown'].value = EFFORT_NAMES[effort] ? `${effort} · ${EFFORT_NAMES[effort]}` : effort;
  form.elements['temperature-shown'].value = Number(form.elements.temperature.value).toFixed(2);
  form.elements['top_p-shown'].value = Number(form.elements.top_p.value).toFixed(2);
  form.elements.effort.disabled = !form.elements.thinking.checked;
  readTools();
}

function save() {
  const values = {};
  for (const name of Object.keys(DEFAULTS)) {
    const field = form.elements[name];
    values[name] = field.type === 'checkbox' ? field.checked : field.value;
  }
  localStorage.setItem(STORE, JSON.stringify(values));
  showValues();
}

// The tool definitions, null where there are none, undefined where they cannot be read; says beside the field why.
function readTools() {
  const text = form.elements.tools.value.trim();
  let problem = '';
  let tools = null;
  if (text) {
    try {
      tools = JSON.parse(text);
      if (!Array.isArray(tools)) problem = 'This must be an array: [ ... ]';
    } catch (error) {
      problem = error.message;
    }
  }
  const note = byId('tools-error');
  note.textContent = problem;
  note.hidden = problem === '';
  form.elements.tools.setAttribute('aria-invalid', String(problem !== ''));
  return problem ? undefined : tools;
}

// The request's fields beside the messages. Throws Error if the tools cannot be read.
export function requestFields() {
  const values = form.elements;
  const tools = readTools();
  if (tools === undefined) {
    openSettings(true);
    values.tools.focus();
    throw new Error('The tool definitions in the settings are no JSON array.');
  }
  const fields = {
    model: values.model.value || undefined,
    temperature: Number(values.temperature.value),
    top_p: Number(values.top_p.value),
    thinking: { type: values.thinking.checked ? 'enabled' : 'disabled' },
  };
  if (values.thinking.checked) fields.reasoning_effort = Number(values.effort.value);
  for (const name of OPTIONAL_NUMBERS) {
    if (values[name].value !== '') fields[name] = Number(values[name].value);
  }
  const stop = values.stop.value.split('\n').filter((line) => line !== '');
  if (stop.length > 0) fields.stop = stop;
  if (tools && tools.length > 0) fields.tools = tools;
  return fields;
}

export const systemPrompt = () => form.elements.system.value;
// Tokens of the chosen model's context, or undefined.
export const contextLength = () => contexts.get(form.elements.model.value);

// Fills the list of models from the reply of /v1/models.
export function setModels(models) {
  contexts = new Map(models.map((model) => [model.id, model.max_model_len]));
  const wanted = form.elements.model.value || stored().model;
  form.elements.model.replaceChildren(...models.map(({ id }) => element('option', { value: id }, id)));
  if (contexts.has(wanted)) form.elements.model.value = wanted;
}

export function openSettings(open = byId('settings').hidden) {
  byId('settings').hidden = !open;
  byId('toggle-settings').setAttribute('aria-expanded', String(open));
  if (open) form.elements.system.focus({ preventScroll: true });
}

export function startSettings() {
  fill(stored());
  form.addEventListener('input', save);
  form.addEventListener('submit', (event) => event.preventDefault());
  byId('reset-settings').addEventListener('click', () => {
    fill(DEFAULTS);
    save();
  });
  byId('toggle-settings').addEventListener('click', () => openSettings());
}
