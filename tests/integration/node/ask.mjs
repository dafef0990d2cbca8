// Asks a base URL with the official Node SDKs and prints what their accumulators return, as JSON.
// Reads {base, key, cases: [{name, api, stream, options, mock}]} from standard input.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const input = JSON.parse(await new Response(process.stdin).text());
const openai = new OpenAI({ baseURL: `${input.base}/v1`, apiKey: input.key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: input.base, apiKey: input.key, maxRetries: 0 });

async function chat({ stream, options }, extra) {
  if (!stream) return openai.chat.completions.create(options, extra);
  const asked = { ...options, stream: true, stream_options: { include_usage: true } };
  return openai.chat.completions.stream(asked, extra).finalChatCompletion();
}

async function responses({ stream, options }, extra) {
  if (!stream) return openai.responses.create(options, extra);
  return openai.responses.stream(options, extra).finalResponse();
}

async function messages({ stream, options }, extra) {
  if (!stream) return anthropic.messages.create(options, extra);
  return anthropic.messages.stream(options, extra).finalMessage();
}

async function embeddings({ options }, extra) {
  return openai.embeddings.create(options, extra);
}

const apis = { chat, responses, messages, embeddings };
const answers = [];
for (const item of input.cases) {
  const answer = await apis[item.api](item, { headers: { baggage: `mock=${encodeURIComponent(item.mock)}` } });
  answers.push(JSON.parse(JSON.stringify(answer)));
}
process.stdout.write(JSON.stringify(answers));
