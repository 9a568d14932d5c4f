package model_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/builtin"
	"glimpse/model/chat"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// TestReferenceModelAgainstNumPy compares logits and greedy answers of the
// built-in model with those of an independent implementation
// (lab/golden/make_reference_golden.py).
func TestReferenceModelAgainstNumPy(t *testing.T) {
	raw, err := os.ReadFile("testdata/reference_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		WeightsSHA256 string `json:"weights_sha256"`
		FilesSHA256   string `json:"files_sha256"`
		Prompts       []struct {
			ID                string    `json:"id"`
			PromptIDs         []int32   `json:"prompt_ids"`
			Logits            []float64 `json:"logits"`
			AnswerIDs         []int32   `json:"answer_ids"`
			LogitsAfterAnswer []float64 `json:"logits_after_answer"`
		} `json:"prompts"`
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Prompts) == 0 {
		t.Fatal("no golden prompts")
	}
	ctx := context.Background()
	for _, device := range kernels.Backends.Names() {
		t.Run(device, func(t *testing.T) {
			if testing.Short() && device != "cpu" {
				t.Skip("the plain loops take seconds")
			}
			m, err := model.Open("", model.Options{Device: device})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if hash, err := m.SHA256(ctx); err != nil || hash != golden.WeightsSHA256 {
				t.Fatalf("weights %s (%v), the golden file is of %s", hash, err, golden.WeightsSHA256)
			}
			if hash, err := m.KnownAs(ctx, golden.FilesSHA256); err != nil || hash != golden.FilesSHA256 {
				t.Fatalf("known as %s (%v), want the hash of the file, %s", hash, err, golden.FilesSHA256)
			}
			for _, p := range golden.Prompts {
				r, cache := runner.New(m), kvcache.New(m)
				logits, err := r.Prefill(ctx, cache, p.PromptIDs, runner.PrefillOptions{})
				if err != nil {
					t.Fatal(err)
				}
				compare.Close(t, p.ID+" logits", logits, p.Logits, 1e-4, compare.Floor(1))
				answer, err := r.Respond(ctx, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 32})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(answer, p.AnswerIDs) {
					t.Fatalf("%s: answer %v, want %v", p.ID, answer, p.AnswerIDs)
				}
				for _, id := range answer {
					if logits, err = r.Step(ctx, cache, id, runner.Capture{}, nil); err != nil {
						t.Fatal(err)
					}
				}
				compare.Close(t, p.ID+" logits after the answer", logits, p.LogitsAfterAnswer, 1e-4, compare.Floor(1))
			}
		})
	}
}

// TestReferenceModelText: words in, words out, the template around them, and an
// error that names a word outside the vocabulary.
func TestReferenceModelText(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tok, err := m.NeedTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := m.EncodeChat(t.Context(), []chat.Message{{Role: "user", Content: "<context> map river <ask> igor"}}, chat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := tok.Decode(ids, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := "<bos> <user> <context> map river <ask> igor <eot> <header> <assistant> <newline>"; text != want {
		t.Fatalf("rendered %q, want %q", text, want)
	}
	if _, err := m.Encode("the qwertz"); err == nil {
		t.Fatal("a word outside the vocabulary: no error")
	}
}

// TestDraftCompanion: it has a quarter of the reference model's parameters, its words, and the
// same end of answers.
func TestDraftCompanion(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	draft, err := model.OpenFS(builtin.Draft(), builtin.DraftName, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer draft.Close()
	if err := m.SameVocabulary(draft); err != nil {
		t.Error(err)
	}
	if got, most := draft.Network.Parameters(), m.Network.Parameters()/4; got > most {
		t.Errorf("%d parameters, want at most %d", got, most)
	}
	if !slices.Equal(draft.Config.EOS, m.Config.EOS) {
		t.Errorf("answers end with %v, want %v", draft.Config.EOS, m.Config.EOS)
	}
}
