// Package gguf reads the models that llama.cpp, Ollama and LM Studio keep in GGUF files. It shows
// such a file as the Hugging Face folder that it was converted from: [Model].Folder has
// config.json, generation_config.json, tokenizer.json and tokenizer_config.json, made of the
// file's metadata, and Weights the tensors under their Hugging Face names, with the rows in their
// order there. What reads folders reads GGUF files by that, and LoRA factors of PEFT mean the same
// rows of either.
//
//	m, err := gguf.Open("SmolLM2-135M-Instruct-Q4_1.gguf")
//	config, err := fs.ReadFile(m.Folder, "config.json")
//	weights, err := m.Weights()
//
// Keys and their meaning are as in llama.cpp (gguf-py's constants.py, llama-model.cpp and
// llama-vocab.cpp). A key of the architecture that is not known here is an error: it could change
// what the model computes. Numbers in float32 are written in the shortest decimal that gives
// them, so 1e-05 is again what config.json said.
package gguf
