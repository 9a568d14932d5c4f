// Package checkpoints reads and writes everything that lives on disk: the
// weights of base models, adapters, and the state of a training run.
//
// Tensors are in safetensors files; package gguf reads models of llama.cpp's format
// too, and package quantized widens folders that are quantised. A base model's file is mapped into memory and never copied: OpenWeights finds
// the one file or the shards of a Hugging Face folder and hands out views into the map.
//
//	w, err := checkpoints.OpenWeights("models/llama-3.2-1b")
//	if err != nil {
//		return err
//	}
//	defer w.Close()
//	q, err := w.Tensor("model.layers.0.self_attn.q_proj.weight")
//
// An adapter is a folder that Python's PEFT can open and that says everything
// needed to run it (see WriteAdapter for its files). Its glimpse.json carries
// the SHA-256 of every other file, of itself, and of the base model's weights,
// so that a damaged folder or another base model is an error and never a worse
// answer.
//
// A run state is one file with the parameters, the optimiser's moments and a
// JSON record of where the run stood; it is replaced atomically, so a run that
// is killed at any moment finds the last whole one.
//
// Files come from anywhere and are not trusted. Every reader checks the whole
// structure before it hands anything out, refuses duplicate, unknown and missing
// keys, allocates no more than a small multiple of the file's content, and
// returns an error that names the file, the tensor or key, what was found and
// what was wanted. Damaged or malformed content is ErrCorrupt.
package checkpoints
