package main

// judgeqCommand trains Judge Q (arXiv:2509.10798, §4).
var judgeqCommand = adapterCommand{
	use: "judgeq", kind: "judgeq", rate: 2e-2,
	short: "Train a Judge Q adapter: soft tokens, MSE loss",
	long: `Train a Judge Q adapter: soft tokens that are run after the prompt, and nothing
else, trained with a squared-error loss so that their attention on the prompt is
that of the model's own response.

Samples are those that "train generate" made (--data) or, for the built-in model, a
stream of fresh synthetic prompts that the model answers on the way. The adapter folder
appears only when training is complete.`,
	details: rowsDetails,
	example: `  train judgeq --steps 4 --out out/judgeq --replace
  train judgeq --model path/to/llama --data samples.jsonl --steps 2000 -o adapters/new --replace`,
}
