package checkpoints

import (
	"io/fs"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// registryOf is the registry of adapters that lie in folders of the names of their kinds.
func registryOf(t testing.TB, all ...*Adapter) []byte {
	t.Helper()
	var r Registry
	for _, a := range all {
		if err := r.Add(a, "some/"+a.Kind); err != nil {
			t.Fatal(err)
		}
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// of is an adapter for a model of another hash.
func of(a *Adapter, digit string) *Adapter {
	a.Base.SHA256 = strings.Repeat(digit, 64)
	return a
}

func TestRegistryRoundTrip(t *testing.T) {
	soft, lora := of(softTokens(), "a"), of(withLoRA(), "a")
	data := registryOf(t, soft, lora)
	r, err := ParseRegistry(data)
	if err != nil {
		t.Fatal(err)
	}
	want := []RegisteredModel{{
		Name: lora.Base.Name, SHA256: lora.Base.SHA256, HiddenSize: lora.Embeddings.Cols, Layers: 2,
		Adapters: []RegisteredAdapter{{soft.Kind, "some/" + soft.Kind, soft.SHA256()}, {lora.Kind, "some/" + lora.Kind, lora.SHA256()}},
	}}
	if !reflect.DeepEqual(r.Models, want) {
		t.Fatalf("got  %+v\nwant %+v", r.Models, want)
	}
	if again, err := r.Encode(); err != nil || string(again) != string(data) {
		t.Errorf("%v: the same registry gave other bytes:\n%s", err, again)
	}
	for _, c := range []struct {
		hidden, layers int
		want           bool
	}{{6, 2, true}, {6, 3, true}, {6, 1, false}, {7, 2, false}} {
		if got := r.Models[0].Fits(c.hidden, c.layers); got != c.want {
			t.Errorf("hidden size %d, %d layers: fits %v, want %v", c.hidden, c.layers, got, c.want)
		}
	}
}

// TestRegistryAdd: a model has one adapter of a kind, and a folder holds one adapter.
func TestRegistryAdd(t *testing.T) {
	paths := func(r *Registry) map[string]string {
		out := map[string]string{}
		for _, m := range r.Models {
			for _, a := range m.Adapters {
				out[m.SHA256[:1]+" "+a.Kind] = a.Path
			}
		}
		return out
	}
	var r Registry
	for _, step := range []struct {
		a    *Adapter
		path string
		want map[string]string
	}{
		{of(softTokens(), "a"), "x", map[string]string{"a judgeq": "x"}},
		{of(withLoRA(), "a"), "y", map[string]string{"a judgeq": "x", "a lookaheadkv": "y"}},
		{of(softTokens(), "a"), "z", map[string]string{"a judgeq": "z", "a lookaheadkv": "y"}},
		{of(softTokens(), "b"), "x", map[string]string{"a judgeq": "z", "a lookaheadkv": "y", "b judgeq": "x"}},
		{of(withLoRA(), "a"), "x", map[string]string{"a judgeq": "z", "a lookaheadkv": "x"}}, // in the place of what lay there
	} {
		if err := r.Add(step.a, step.path); err != nil {
			t.Fatal(err)
		}
		if got := paths(&r); !maps.Equal(got, step.want) {
			t.Fatalf("after %s of %s: %v, want %v", step.path, step.a.Base.SHA256[:1], got, step.want)
		}
	}
	for _, path := range []string{"", ".", "../a", "/a", "a/../b", `a\b`, "C:a"} {
		wantError(t, r.Add(softTokens(), path), "path: got")
	}
	if len(paths(&r)) != 2 {
		t.Errorf("a refused adapter changed the registry: %v", paths(&r))
	}
}

// TestRegisteredAdapters: what is read is what was registered.
func TestRegisteredAdapters(t *testing.T) {
	stored := withLoRA()
	folder := func(a *Adapter, with []byte) fstest.MapFS {
		files := map[string][]byte{RegistryFile: with}
		for name, data := range exported(t, a) {
			files["some/"+stored.Kind+"/"+name] = data
		}
		return mapFS(files)
	}
	read := func(from fs.FS) ([]*Adapter, error) {
		r, err := ReadRegistry(from)
		if err != nil {
			return nil, err
		}
		return r.ReadAdapters(&r.Models[0])
	}
	all, err := read(folder(stored, registryOf(t, stored)))
	if err != nil || len(all) != 1 || all[0].SHA256() != stored.SHA256() {
		t.Fatalf("%v, %v", all, err)
	}
	changed := withLoRA()
	changed.Embeddings.Data[0]++
	for name, c := range map[string]struct {
		a    *Adapter
		with *Adapter
		want string
	}{
		"other numbers": {changed, stored, "sha256: got " + changed.SHA256() + ", want " + stored.SHA256()},
		"other model":   {of(withLoRA(), "c"), stored, "sha256 of the base model: got cccc"},
	} {
		_, err := read(folder(c.a, registryOf(t, c.with)))
		wantErrorIs(t, err, ErrCorrupt, c.want)
		if err != nil && !strings.Contains(err.Error(), "adapter some/lookaheadkv: ") {
			t.Errorf("%s: error %v does not name the adapter", name, err)
		}
	}
	gone := folder(stored, registryOf(t, stored))
	delete(gone, "some/lookaheadkv/"+AdapterManifest)
	_, err = read(gone)
	wantErrorIs(t, err, ErrNotAdapter, "read adapter some/lookaheadkv")
	_, err = read(fstest.MapFS{})
	wantErrorIs(t, err, fs.ErrNotExist, "registry.json: ")
}

func TestHostileRegistries(t *testing.T) {
	good := string(registryOf(t, withLoRA(), softTokens()))
	hash := withLoRA().Base.SHA256
	for name, c := range map[string]struct {
		from, to string
		is       error
		want     string
	}{
		"not JSON":             {good, "{", ErrCorrupt, "not valid JSON"},
		"a list":               {good, "[]", ErrCorrupt, "not valid JSON"},
		"another format":       {registryFormat, manifestFormat, ErrCorrupt, `format: got "glimpse-adapter", want "glimpse-registry" and a version`},
		"another version":      {`"version": 1`, `"version": 2`, ErrVersion, "got 2, want 1"},
		"unknown key":          {`"models"`, `"x": 1, "models"`, ErrCorrupt, `unknown keys "x"`},
		"unknown, of model":    {`"hidden_size"`, `"x": 1, "hidden_size"`, ErrCorrupt, `models[0]: unknown keys "x"`},
		"unknown, of adapter":  {`"path"`, `"x": 1, "path"`, ErrCorrupt, `models[0].adapters[0]: unknown keys "x"`},
		"missing":              {`"layers": 2,`, ``, ErrCorrupt, `missing keys "models[0].layers"`},
		"twice":                {`"layers": 2,`, `"layers": 2, "layers": 3,`, ErrCorrupt, `duplicate key "layers"`},
		"models null":          {good[strings.Index(good, "["):], "null}", ErrCorrupt, "models: got null"},
		"no name":              {withLoRA().Base.Name, "", ErrCorrupt, "name is empty"},
		"hash in upper case":   {`"sha256": "` + hash, `"sha256": "` + strings.ToUpper(hash[:63]) + "F", ErrCorrupt, "sha256: got"},
		"huge model":           {`"hidden_size": 6`, `"hidden_size": 99999999`, ErrCorrupt, "hidden_size: got 99999999, want 1 to 1048576"},
		"fewer than no layers": {`"layers": 2`, `"layers": -1`, ErrCorrupt, "layers: got -1, want 0 to 65536"},
		"upwards":              {"some/judgeq", "../judgeq", ErrCorrupt, `path: got "../judgeq", want one below the registry's folder`},
		"upwards in between":   {"some/judgeq", "some/../../judgeq", ErrCorrupt, `path: got`},
		"absolute":             {"some/judgeq", "/judgeq", ErrCorrupt, `path: got "/judgeq"`},
		"the folder itself":    {"some/judgeq", ".", ErrCorrupt, `path: got "."`},
		"backslashes":          {"some/judgeq", `..\\judgeq`, ErrCorrupt, `path: got`},
		"a line's end":         {"some/judgeq", `some\njudgeq`, ErrCorrupt, `path: got "some\njudgeq"`},
		"a path twice":         {"some/judgeq", "some/lookaheadkv", ErrCorrupt, `"some/lookaheadkv" is of two adapters`},
		"a kind twice":         {`"kind": "judgeq"`, `"kind": "lookaheadkv"`, ErrCorrupt, `two adapters of kind "lookaheadkv"`},
		"a kind with a colour": {`"kind": "judgeq"`, `"kind": "\u001b[31m"`, ErrCorrupt, `kind: got "\x1b[31m"`},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(good, c.from) {
				t.Fatalf("the registry does not contain %q", c.from)
			}
			_, err := ParseRegistry([]byte(strings.Replace(good, c.from, c.to, 1)))
			wantErrorIs(t, err, c.is, c.want)
			if err != nil && !strings.HasPrefix(err.Error(), "registry.json: ") {
				t.Errorf("error %v does not name the file", err)
			}
		})
	}
	_, err := ReadRegistry(fstest.MapFS{RegistryFile: {Data: make([]byte, MaxRegistry+1)}})
	wantErrorIs(t, err, ErrCorrupt, "registry.json: file of 16777217 bytes, want at most 16777216")
}
