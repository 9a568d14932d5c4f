// Package softtokens is the Judge Q adapter: soft tokens, learned embeddings that
// are appended after the prompt, and nothing else (Judge Q, arXiv:2509.10798, §4). The model that
// runs them is the frozen one.
package softtokens
