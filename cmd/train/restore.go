package main

// restoreCommand trains rows that stay (RestoreKV, arXiv:2608.01247).
var restoreCommand = adapterCommand{
	use: "restore", kind: "restorekv", lora: true, rate: 1e-3,
	short: "Train rows whose keys and values stay in the evicted cache, by what the full cache says",
	long: `Train rows whose keys and values stay in the evicted cache, by what the full cache says.

The rows run after the prompt, attend to all of it and select, as lookahead embeddings do. The
keys and values of the last 8 then stay beside what they have selected, or what the rows of
another adapter have (--scorer), within the budget. They are trained so that the model says with
the evicted cache what it says with the full one: the response or, with --label context or
context-mean, on any texts: a part of the prompt that it is asked to repeat, or what it says to
the prompt as a user's message. Budgets of 5 to 25% are drawn sample by sample.`,
	details: `Where another adapter selects, 8 rows are enough (--rows 8): they only restore. Else --init-adapter
begins with the numbers of another adapter of as many rows, as one of "train lookahead": it knows
what to select, and less is left to learn.

` + rowsDetails,
	example: `  train restore --steps 4 --batch 2 --out out/restore --replace
  train restore --model org/name --data samples.jsonl --scorer adapters/llama --steps 9 -o out/rows`,
}
