package checkpoints

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"glimpse/kernels"
)

// Each target checks that arbitrary bytes give a value or ErrCorrupt, never a
// panic, within the allocation that their size allows, and that a value which
// is accepted holds together. Run one with
//
//	go test ./checkpoints -run '^$' -fuzz '^FuzzSafetensors$' -fuzzminimizetime 10x
//
// because shrinking every interesting input for a minute, the default, leaves no
// time to find any.

func FuzzSafetensors(f *testing.F) {
	for _, c := range hostileFiles() {
		f.Add(c.file)
	}
	f.Add(shardBytes(f, "a", "b"))
	f.Add(rawFile(`{"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[1,1],"data_offsets":[0,8]}}  `, "12345678"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s *Safetensors
		var err error
		checkAllocation(t, len(data), func() { s, err = ParseSafetensors("x", data) })
		if err != nil {
			wantErrorIs(t, err, ErrCorrupt, "x: ")
			return
		}
		total := 0
		for _, name := range s.Names() {
			info, ok := s.Info(name)
			size, err := byteSize(info.DType, info.Shape)
			if !ok || err != nil || size != info.Bytes {
				t.Fatalf("tensor %q: %+v, want %d bytes (%v)", name, info, size, err)
			}
			total += size
			v, err := s.Tensor(name)
			if _, unsupported := kernels.ParseDType(info.DType); unsupported != nil {
				wantErrorIs(t, err, ErrDType, info.DType)
			} else if err != nil || len(v.Data) != size {
				t.Fatalf("tensor %q: %d bytes, want %d (%v)", name, len(v.Data), size, err)
			}
		}
		if total != len(s.payload) {
			t.Fatalf("tensors of %d bytes in data of %d", total, len(s.payload))
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add(sharded(f)[indexFile])
	for _, seed := range []string{
		``, `null`, `[]`, `{}`, `{"weight_map":null}`, `{"weight_map":{}}`, `{"weight_map":{"a":null}}`,
		`{"weight_map":{"a":"a.safetensors"},"weight_map":{}}`, `{"weight_map":{"a":"../a.safetensors"}}`,
		`{"Weight_map":{"a":"a.safetensors"}}`, `{"weight_map":{"a":"a\u0000.safetensors"}}`, `{"weight_map":{"a":"a.safetensors"}} x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var files map[string]string
		var err error
		checkAllocation(t, len(data), func() { files, err = parseIndex(data) })
		if err != nil {
			wantErrorIs(t, err, ErrCorrupt, "")
			return
		}
		if len(files) == 0 {
			t.Fatal("accepted an index without tensors")
		}
		for tensor, file := range files {
			if !plainFileName(file) {
				t.Fatalf("tensor %q: accepted file %q", tensor, file)
			}
		}
	})
}

// FuzzManifest reads glimpse.json with the digest made right, so that more than
// the digest is tested.
func FuzzManifest(f *testing.F) {
	for _, a := range adapters() {
		f.Add(exported(f, a)[AdapterManifest])
	}
	f.Add([]byte(`{"format":"glimpse-adapter","version":1}`))
	f.Add([]byte(`{"format":"glimpse-adapter","version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		files := map[string][]byte{AdapterManifest: data}
		sign(t, files)
		var err error
		checkAllocation(t, len(data), func() { _, err = decodeManifest(files[AdapterManifest]) })
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("error %v is neither ErrCorrupt nor ErrVersion", err)
		}
	})
}

func FuzzRegistry(f *testing.F) {
	f.Add(registryOf(f, softTokens(), withLoRA()))
	f.Add([]byte(`{"format":"glimpse-registry","version":1,"models":[]}`))
	f.Add([]byte(`{"format":"glimpse-registry","version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r *Registry
		var err error
		checkAllocation(t, len(data), func() { r, err = ParseRegistry(data) })
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("error %v is neither ErrCorrupt nor ErrVersion", err)
			}
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatalf("accepted a registry that is not valid: %v", err)
		}
		if _, err := ParseRegistry(again); err != nil {
			t.Fatalf("what it is written as is refused: %v", err)
		}
	})
}

// FuzzAdapter reads a folder of arbitrary files, once as it is and once without
// the hashes.
func FuzzAdapter(f *testing.F) {
	for _, a := range adapters() {
		files := exported(f, a)
		f.Add(files[AdapterManifest], files[embeddingsFile], files[peftConfigFile], files[peftModelFile])
	}
	hostile := hostileFiles()["overlap"].file
	files := exported(f, withLoRA())
	f.Add(files[AdapterManifest], hostile, files[peftConfigFile], files[peftModelFile])
	f.Add(files[AdapterManifest], files[embeddingsFile], files[peftConfigFile], hostile)
	f.Add(files[AdapterManifest], files[embeddingsFile], []byte(`{"r":1}`), files[peftModelFile])
	f.Fuzz(func(t *testing.T, m, embeddings, config, model []byte) {
		files := map[string][]byte{AdapterManifest: m, embeddingsFile: embeddings}
		if len(config)+len(model) > 0 {
			files[peftConfigFile], files[peftModelFile] = config, model
		}
		if a, err := ReadAdapterFS(mapFS(files), "."); err == nil {
			if err := a.Validate(); err != nil {
				t.Fatalf("accepted an adapter that is not valid: %v", err)
			}
		} else if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("error %v is neither ErrCorrupt nor ErrVersion", err)
		}
		var decoded manifest
		if err := json.Unmarshal(m, &decoded); err != nil {
			return
		}
		size := len(m) + len(embeddings) + len(config) + len(model)
		var a *Adapter
		var err error
		checkAllocation(t, size, func() { a, err = assembleAdapter(decoded, files) })
		if err != nil {
			wantErrorIs(t, err, ErrCorrupt, "")
			return
		}
		for _, key := range a.loraKeys() {
			if !slices.Contains(Modules, key.Module) {
				t.Fatalf("accepted module %q", key.Module)
			}
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add(shardBytes(f, "a"))
	f.Add(rawFile(sealedStart+noDigest+`","format":"glimpse-run-state","run":"{}","version":"1"}}`, ""))
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		checkAllocation(t, len(data), func() { err = readStateBytes(data) })
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("error %v is neither ErrCorrupt nor ErrVersion", err)
		}
	})
}

func checkAllocation(t *testing.T, size int, f func()) {
	t.Helper()
	if got := allocated(f); got > allocationLimit(size) {
		t.Fatalf("%d bytes allocated for %d bytes of input, want at most %d", got, size, allocationLimit(size))
	}
}
