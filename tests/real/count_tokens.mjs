// Reads a JSON array of texts, writes a JSON array of their o200k_base token counts:
// an implementation of tiktoken that is not the one under test.
import { readFileSync } from "node:fs";
import { Tiktoken } from "js-tiktoken/lite";
import o200k from "js-tiktoken/ranks/o200k_base";

const tokenizer = new Tiktoken(o200k);
const texts = JSON.parse(readFileSync(0, "utf8"));
// No special token is allowed and none is refused: they are plain text.
console.log(JSON.stringify(texts.map((text) => tokenizer.encode(text, [], []).length)));
