// Where two texts differ, by words.

import { h } from "./dom.js";

const MOST = 400;

// [operation, text] with "=", "-" (in the older one only) and "+" (in the newer one only).
export function differing(older, newer) {
  const a = words(older), b = words(newer);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < Math.min(a.length, b.length) - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const middle = between(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return joined([
    ...a.slice(0, head).map((word) => ["=", word]), ...middle, ...a.slice(a.length - tail).map((word) => ["=", word]),
  ]);
}

function words(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

// By the longest common subsequence; texts too long for its table differ as a whole.
function between(a, b) {
  if (!a.length || !b.length || a.length > MOST || b.length > MOST) {
    return [...a.map((word) => ["-", word]), ...b.map((word) => ["+", word])];
  }
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const made = [];
  let i = 0, j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      made.push(["=", a[i]]);
      i += 1;
      j += 1;
    } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) {
      made.push(["-", a[i]]);
      i += 1;
    } else {
      made.push(["+", b[j]]);
      j += 1;
    }
  }
  return [...made, ...a.slice(i).map((word) => ["-", word]), ...b.slice(j).map((word) => ["+", word])];
}

function joined(pieces) {
  const made = [];
  for (const [operation, text] of pieces) {
    if (made.length && made[made.length - 1][0] === operation) made[made.length - 1][1] += text;
    else made.push([operation, text]);
  }
  return made;
}

// The nodes of both texts, what differs marked. `cut`: both were cut off at the end, so that what
// only one of them has there says nothing.
export function sides(older, newer, cut = false) {
  const pieces = differing(older, newer);
  const last = pieces.length - 1;
  if (cut && last > 0 && pieces[last][0] !== "=" && pieces[last - 1][0] === "=") pieces[last][0] = pieces[last][0] === "-" ? "old" : "new";
  const side = (own, plain) => pieces.filter(([operation]) => ["=", own, plain].includes(operation))
    .map(([operation, text]) => (operation === own ? h(own === "-" ? "del" : "ins", null, text) : text));
  return [side("-", "old"), side("+", "new")];
}
