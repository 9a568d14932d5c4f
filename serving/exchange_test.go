package serving

import (
	"strings"
	"testing"

	"glimpse/engine"
	"glimpse/model"
)

// TestKeptIsBounded: what was kept is told of prompts up to a length, and longer ones are refused by the field's name.
func TestKeptIsBounded(t *testing.T) {
	m := &model.Model{}
	m.Config.MaxPositions, m.Config.Vocab = 4*maxKept, 1
	s := &Server{model: &engine.Model{Model: m}}
	prompt := make([]int32, maxKept+1)
	if err := (&exchange{kept: true}).checkPrompt(s, "prompt", prompt[1:]); err != nil {
		t.Errorf("a prompt of %d tokens: %v", maxKept, err)
	}
	if err := (&exchange{}).checkPrompt(s, "prompt", prompt); err != nil {
		t.Errorf("a longer one, of which nothing is told: %v", err)
	}
	err := (&exchange{kept: true}).checkPrompt(s, "prompt", prompt)
	if err == nil || ofModel(err).status != 400 || *ofModel(err).Param != "eviction.kept" || !strings.Contains(err.Error(), "8193 tokens, want at most 8192") {
		t.Errorf("a longer one: error %v", err)
	}
}
