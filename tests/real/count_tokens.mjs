// Reads a JSON array of texts and writes a JSON array of their o200k_base token counts, by another implementation of
// tiktoken.
import { readFileSync } from "node:fs";
import { Tiktoken } from "js-tiktoken/lite";
import o200k from "js-tiktoken/ranks/o200k_base";

const tokenizer = new Tiktoken(o200k);
const texts = JSON.parse(readFileSync(0, "utf8"));
// Special tokens are treated as plain text.
console.log(JSON.stringify(texts.map((text) => tokenizer.encode(text, [], []).length)));
