package adapters

import (
	"io/fs"
	"slices"
	"testing"

	"glimpse/checkpoints"
	"glimpse/model"
)

// TestRegistry: every adapter that ships is listed, is the one that was listed, and every one that is listed ships; the
// built-in model has both kinds.
func TestRegistry(t *testing.T) {
	r, err := Registry()
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range r.Models {
		if _, err := r.ReadAdapters(&m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		for _, a := range m.Adapters {
			listed = append(listed, a.Path+"/"+checkpoints.AdapterManifest)
		}
	}
	there, err := fs.Glob(files, "*/*/"+checkpoints.AdapterManifest)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	if !slices.Equal(listed, there) {
		t.Errorf("registry.json lists %q, want %q, which are there", listed, there)
	}
	builtin, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer builtin.Close()
	sum, err := builtin.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Models, func(m checkpoints.RegisteredModel) bool { return m.SHA256 == sum })
	if i < 0 || len(r.Models[i].Adapters) != 2 || !r.Models[i].Fits(builtin.Config.Hidden, builtin.Config.Layers) {
		t.Errorf("%+v lists no adapters of both kinds for the built-in model, %s", r.Models, sum)
	}
}
