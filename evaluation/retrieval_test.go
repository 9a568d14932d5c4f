package evaluation

import (
	"bytes"
	"encoding/binary"
	"testing"

	"glimpse/datasets"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// bytesOf makes ids something to search in.
func bytesOf(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		out = binary.BigEndian.AppendUint32(out, uint32(id))
	}
	return out
}

// TestRetrievals: every answer stands in its prompt, for a model that knows the synthetic
// tasks and for one that does not; the same seed gives the same prompts.
func TestRetrievals(t *testing.T) {
	builtin, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer builtin.Close()
	other := modeltest.Llama{Vocab: 200}.Open(t, "cpu")
	for name, m := range map[string]*model.Model{"tasks": builtin, "random": other} {
		t.Run(name, func(t *testing.T) {
			const tokens, samples = 160, 3
			n, at, err := Retrievals(m, datasets.Validation, tokens, samples, 1)
			if err != nil || n < samples {
				t.Fatalf("%d prompts, %v", n, err)
			}
			for i := range n {
				r, err := at(i)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Prompt) != tokens || len(r.Answer) == 0 {
					t.Fatalf("prompt %d: %d tokens, answer of %d, want %d and at least 1", i, len(r.Prompt), len(r.Answer), tokens)
				}
				answer := r.Answer
				if name == "random" && !bytes.Contains(bytesOf(r.Prompt), bytesOf(answer)) {
					t.Errorf("prompt %d: the answer does not stand in it", i)
				}
				again, err := at(i)
				if err != nil || !bytes.Equal(bytesOf(again.Prompt), bytesOf(r.Prompt)) {
					t.Errorf("prompt %d: another one the second time (%v)", i, err)
				}
			}
		})
	}
	if _, at, err := Retrievals(other, datasets.Validation, 20, 1, 1); err != nil {
		t.Fatal(err)
	} else if _, err := at(0); err == nil {
		t.Error("a random prompt too short for its copy: no error")
	}
}
