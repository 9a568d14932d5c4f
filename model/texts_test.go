package model_test

import (
	"slices"
	"strings"
	"testing"

	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestTexts: tokens as they are read, one text for each: line ends are seen and remain.
// Without a tokenizer they are ids.
func TestTexts(t *testing.T) {
	g := modeltest.GoldenNamed(t, "qwen3")
	m, err := model.Open(g.Folder, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const text = "a b\nkeys and\n\nvalues"
	ids, err := m.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	got := m.Texts(ids)
	if shown := strings.Join(got, ""); len(got) != len(ids) || shown != strings.ReplaceAll(text, "\n", "↵\n") {
		t.Errorf("%q is shown as %q, of %d tokens", text, got, len(ids))
	}
	if got := m.Texts(nil); len(got) != 0 {
		t.Errorf("no tokens are shown as %q", got)
	}
	folder, err := modeltest.Llama{}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	if got := modeltest.OpenFolder(t, folder, "cpu").Texts([]int32{3, 14}); !slices.Equal(got, []string{"3 ", "14 "}) {
		t.Errorf("without a tokenizer %q", got)
	}
}
