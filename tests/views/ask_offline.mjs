// Answers questions about a map as the page does: reads {script, payload, questions} from the input as JSON, and
// writes one answer a question. A question is the name of a method of OfflineSource and its arguments.
import { readFileSync } from "node:fs";

const { script, payload, questions } = JSON.parse(readFileSync(0, "utf-8"));
const code = Buffer.from(`${script}\nexport { openSource };`).toString("base64");
const { openSource } = await import(`data:text/javascript;base64,${code}`);
const source = await openSource(payload);
const plain = (name, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
const answers = questions.map(([method, ...given]) => source[method](...given) ?? null);
process.stdout.write(JSON.stringify(answers, plain));
