package main

// lookaheadCommand trains LookaheadKV (arXiv:2603.10899, §3; appendix A for the
// defaults of rows, rank and α).
var lookaheadCommand = adapterCommand{
	use: "lookahead", kind: "lookaheadkv", lora: true, rate: 3e-3,
	short: "Train a LookaheadKV adapter: lookahead embeddings and Lookahead LoRA, KL loss",
	long: `Train a LookaheadKV adapter: learnable lookahead embeddings that are run after
the prompt, with low-rank updates of the linear layers that act on those rows only,
trained with a KL loss to predict where the model's own response attends in the
prompt.

Samples are those that "train generate" made (--data) or, for the built-in model, a
stream of fresh synthetic prompts that the model answers on the way. The adapter folder
appears only when training is complete.`,
	details: `The modules of --modules are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and
down_proj; "all" are all of them, and "qv" is q_proj,v_proj. Those of the last layer that the
scores do not depend on (v, o, gate, up, down) would never get a gradient and are left out.
Of a mixture of experts "all" leaves the experts out: "all,experts" gives each of those that a
router chooses factors of its own, for gate, up and down. Routers and shared experts have none.

` + rowsDetails,
	example: `  train lookahead --steps 4 --out out/lookahead --replace
  train lookahead --model path/to/llama --data samples.jsonl --steps 2000 -o adapters/new --replace`,
}
