package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestModelsLists names every architecture and scaling type, with modules.
func TestModelsLists(t *testing.T) {
	out, _, err := execute(t, "models")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append(model.Families.Names(), "q,k,v,o,gate,up,down", "q,k,v,o,up,down", "logits,gradients,gguf", strings.Join(model.RoPETypes(), ", "), "Models with shipped adapters: ", "glimpse-reference (judgeq, lookaheadkv)") {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing from\n%s", want, out)
		}
	}
	out, _, err = execute(t, "models", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Architectures []struct {
			Architecture string
			Modules      []struct{ Name, Tensor string }
			Checked      []string
		}
		RoPEScaling []string `json:"rope_scaling"`
		Adapters    []struct {
			Model, SHA256 string
			Kinds         []string
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Architectures) != len(model.Families.Names()) || len(list.RoPEScaling) != len(model.RoPETypes()) {
		t.Errorf("%d architectures and %d scaling types", len(list.Architectures), len(list.RoPEScaling))
	}
	if len(list.Adapters) == 0 || len(list.Adapters[0].SHA256) != 64 || len(list.Adapters[0].Kinds) == 0 {
		t.Errorf("shipped adapters %+v", list.Adapters)
	}
	for _, a := range list.Architectures {
		if len(a.Checked) == 0 || a.Checked[0] != "logits" {
			t.Errorf("%s: checked by %v", a.Architecture, a.Checked)
		}
		for _, m := range a.Modules {
			if a.Architecture == "FalconForCausalLM" && m.Name == "k_proj" && m.Tensor != "transformer.h.0.self_attention.query_key_value.weight" {
				t.Errorf("Falcon's keys are %s", m.Tensor)
			}
		}
	}
}

// TestRunPrintsGoldenTokens: what the command prints for a model of every family
// is what transformers generates.
func TestRunPrintsGoldenTokens(t *testing.T) {
	for _, g := range modeltest.Goldens(t) {
		for _, p := range g.Prompts {
			out, log, err := execute(t, "run", "--model", g.Folder, "--policy", "full", "--raw", "--max-new", fmt.Sprint(len(p.Greedy)), p.Text)
			if err != nil {
				t.Fatalf("%s: %v\n%s", g.Name, err, log)
			}
			if strings.TrimRight(out, "\n") != strings.TrimRight(p.GreedyText, "\n") {
				t.Errorf("%s: printed %q, want %q", g.Name, out, p.GreedyText)
			}
		}
	}
}
