// Package lora is the LookaheadKV adapter: learnable lookahead embeddings, rows
// that are appended after the prompt, and Lookahead LoRA, low-rank updates of the
// linear layers that act on those rows only (LookaheadKV, arXiv:2603.10899, §3). The prompt's own
// hidden states never see either, so its keys and values are the frozen
// model's.
package lora
