package gguf_test

import (
	"fmt"
	"log"

	"glimpse/checkpoints/gguf"
)

func ExampleOpen() {
	f, err := gguf.Open("testdata/all.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	architecture, _, err := f.String("general.architecture")
	if err != nil {
		log.Fatal(err)
	}
	q, _ := f.Tensor("attn_q.weight")
	fmt.Println(architecture, q.Format.Name, q.Shape)

	w, err := f.Weights(map[string]gguf.Source{
		"model.layers.0.self_attn.q_proj.weight": {Tensor: "attn_q.weight", Row: gguf.InterleavedRows(8)},
	})
	if err != nil {
		log.Fatal(err)
	}
	info, _ := w.Info("model.layers.0.self_attn.q_proj.weight")
	fmt.Println(info.DType, info.Shape)
	// Output:
	// llama Q8_0 [24 32]
	// Q8_0 [24 32]
}
