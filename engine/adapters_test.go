package engine

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
	"glimpse/model"
	"glimpse/model/modeltest"

	_ "glimpse/gates"
	_ "glimpse/kernels/backends"
	_ "glimpse/lora"
	_ "glimpse/softtokens"
)

const testGGUF = "../model/gguf/testdata/llama.gguf"

// adapterFor is an adapter of a kind for the weights of a model.
func adapterFor(t *testing.T, path, kind string) *checkpoints.Adapter {
	t.Helper()
	m, err := model.Open(path, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	k, err := model.RowsKinds.Lookup(kind)
	if err != nil {
		t.Fatal(err)
	}
	c := model.AdapterConfig{Rows: 2, InitToken: -1, InitNoise: 1, Seed: 1}
	if kind == "lookaheadkv" {
		c.Rank, c.Alpha, c.Modules = 2, 4, []model.Module{model.QProj, model.KProj}
	}
	trained, err := k.New(m, c)
	if err != nil {
		t.Fatal(err)
	}
	a := trained.Export()
	if a.Base.SHA256, err = m.SHA256(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Base.Name, a.Loss, a.PoolingKernel = "tiny llama", "kl", 1
	if len(a.LoRA) > 0 {
		a.InvocationTokens = []int{1}
	}
	return a
}

// register writes adapters of both kinds for the model into a registry.
func register(t *testing.T, registry, path string, s objectstore.Settings) {
	t.Helper()
	for _, kind := range []string{"judgeq", "lookaheadkv"} {
		target := registry + "/tiny/" + kind
		if !objectstore.IsURL(registry) {
			if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		a := adapterFor(t, path, kind)
		if _, err := objectstore.WriteAdapter(t.Context(), target, a, false, s, io.Discard); err != nil {
			t.Fatal(err)
		}
		if err := objectstore.Register(t.Context(), registry, target, a, s); err != nil {
			t.Fatal(err)
		}
	}
}

// kinds are the adapters that a model is opened with, each as KIND/NAME, and the policy without one that is asked for.
func kinds(t *testing.T, o Options) (all, policy, from string, err error) {
	t.Helper()
	m, err := Open(t.Context(), &o, io.Discard)
	if err != nil {
		return "", "", "", err
	}
	defer m.Close()
	var names []string
	for _, a := range m.adapters {
		names = append(names, a.Kind()+"/"+a.name)
	}
	policy, from = m.DefaultPolicy()
	return strings.Join(names, " "), policy, from, nil
}

// TestAdaptersOfARegistry: a registry's adapters are found by the weights, in whatever file they are, and no others.
func TestAdaptersOfARegistry(t *testing.T) {
	folder, other := modeltest.FolderOfGGUF(t, testGGUF), modeltest.FolderOfGGUF(t, testGGUF)
	weights := filepath.Join(other, "model.safetensors")
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-3] ^= 1 // a number of one tensor
	if err := os.WriteFile(weights, data, 0o644); err != nil {
		t.Fatal(err)
	}
	deeper := "../model/gguf/testdata/granite.gguf" // another shape
	check := func(t *testing.T, registry string, s objectstore.Settings) {
		register(t, registry, folder, s)
		const both = "judgeq/ lookaheadkv/"
		for _, path := range []string{folder, testGGUF} {
			if all, policy, from, err := kinds(t, Options{Model: path, Adapters: []string{registry}, S3: s}); err != nil || all != both || policy != "lookaheadkv" || from != "" {
				t.Errorf("%s: adapters %q, policy %s from %q, error %v", path, all, policy, from, err)
			}
			if all, policy, from, err := kinds(t, Options{Model: path, Adapters: []string{registry}, AdaptersByDefault: true, S3: s}); err != nil || all != both || policy != "lookaheadkv" || from != registry {
				t.Errorf("%s, by default: adapters %q, policy %s from %q, error %v", path, all, policy, from, err)
			}
		}
		for _, path := range []string{other, deeper} {
			_, _, _, err := kinds(t, Options{Model: path, Adapters: []string{registry}, S3: s})
			if err == nil || !strings.Contains(err.Error(), `none for the weights of model `) || !strings.Contains(err.Error(), `it has adapters for: "tiny llama"`) {
				t.Errorf("%s: error %v", path, err)
			}
			if all, policy, from, err := kinds(t, Options{Model: path, Adapters: []string{registry}, AdaptersByDefault: true, S3: s}); err != nil || all != "" || policy != "snapkv" || from != "" {
				t.Errorf("%s, by default: adapters %q, policy %s from %q, error %v", path, all, policy, from, err)
			}
		}
	}
	t.Run("folder", func(t *testing.T) {
		dir := t.TempDir()
		check(t, dir, objectstore.Settings{})
		if all, _, _, err := kinds(t, Options{Model: folder, Adapters: []string{"mine=" + dir}}); err != nil || all != "judgeq/mine lookaheadkv/mine" {
			t.Errorf("named: adapters %q, error %v", all, err)
		}
		damaged := filepath.Join(dir, "tiny", "judgeq", checkpoints.AdapterManifest)
		if err := os.Remove(damaged); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := kinds(t, Options{Model: folder, Adapters: []string{dir}}); err == nil || !strings.Contains(err.Error(), "tiny/judgeq: not an adapter folder") {
			t.Errorf("an adapter that is gone: error %v", err)
		}
	})
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		check(t, "s3://test/registry", objectstore.Settings{Endpoint: s.URL})
	})
	if _, _, _, err := kinds(t, Options{Model: folder, Adapters: []string{t.TempDir()}}); err == nil || !strings.Contains(err.Error(), "not an adapter folder: no glimpse.json, want a folder that train has written") || !strings.Contains(err.Error(), "or one with a registry.json") {
		t.Errorf("neither an adapter nor a registry: error %v", err)
	}
}

// TestShippedAdapters: the built-in model's adapters are found by its weights, whatever it is called.
func TestShippedAdapters(t *testing.T) {
	const both = "judgeq/shipped lookaheadkv/shipped"
	for _, path := range []string{"", "../model/builtin/reference"} {
		for _, asked := range [][]string{nil, {Shipped}} {
			if all, policy, _, err := kinds(t, Options{Model: path, Adapters: asked}); err != nil || all != both || policy != "lookaheadkv" {
				t.Errorf("model %q, asked for %q: adapters %q, policy %s, error %v", path, asked, all, policy, err)
			}
		}
	}
	if _, _, _, err := kinds(t, Options{Model: testGGUF, Adapters: []string{Shipped}}); err == nil || !strings.Contains(err.Error(), `"glimpse-reference"`) {
		t.Errorf("asked for, of another model: error %v", err)
	}
}

// TestLeftOut: a policy with "?" behind it takes part where its adapter is there.
func TestLeftOut(t *testing.T) {
	for _, c := range []struct{ model, list, want, left string }{
		{"", "full,judgeq?,lookaheadkv?", "full judgeq lookaheadkv", ""},
		{testGGUF, "full,judgeq?,snapkv,lookaheadkv(window=1)?", "full snapkv", "policy judgeq: needs an adapter"},
		{testGGUF, "full,judgeq", "", ""},
	} {
		m, err := Open(t.Context(), &Options{Model: c.model}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		all, leftOut, err := m.Policies(c.list)
		if (err == nil) != (c.want != "") || (m.checkAdapters(c.list) == nil) != (c.want != "") {
			t.Errorf("%s: errors %v and %v", c.list, err, m.checkAdapters(c.list))
		}
		var names []string
		for _, x := range all {
			names = append(names, x.Name)
		}
		if got := strings.Join(names, " "); got != c.want || !strings.Contains(strings.Join(leftOut, "; "), c.left) || c.left == "" && len(leftOut) > 0 {
			t.Errorf("%s: policies %q, want %q; left out %q", c.list, got, c.want, leftOut)
		}
	}
}

// TestNameAdapters: adapters that were given without a name have their folders', each of a kind another.
func TestNameAdapters(t *testing.T) {
	dir := t.TempDir()
	at := func(path string) string {
		a := adapterFor(t, testGGUF, "judgeq")
		target := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := objectstore.WriteAdapter(t.Context(), target, a, false, objectstore.Settings{}, io.Discard); err != nil {
			t.Fatal(err)
		}
		return target
	}
	for _, c := range []struct{ adapters, want []string }{
		{[]string{at("new/my adapter")}, []string{"my-adapter"}},
		{[]string{at("..a/b.")}, []string{"b"}},
		{[]string{at("one"), "two=" + at("other")}, []string{"one", "two"}},
		{[]string{at("x/same"), "same=" + at("y/same")}, []string{"same-2", "same"}},
	} {
		m, err := Open(t.Context(), &Options{Model: testGGUF, Device: "cpu", CacheDType: "auto", Adapters: c.adapters}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		m.NameAdapters()
		var names []string
		for _, a := range m.Adapters() {
			names = append(names, a.Name)
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%v: %v, want %v", c.adapters, names, c.want)
		}
		m.Close()
	}
}
