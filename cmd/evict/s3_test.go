package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// TestS3: model and adapter from a bucket answer as the local ones do; the model's
// weights are fetched once; what was altered in the bucket is refused.
func TestS3(t *testing.T) {
	const reference, adapters = "../../model/builtin/reference", "../../adapters/reference/lookaheadkv"
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		t.Setenv("GLIMPSE_CACHE", t.TempDir())
		store, _, err := objectstore.Open(t.Context(), "s3://test/x", objectstore.Settings{Endpoint: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{reference: "models/tiny", adapters: "adapters/tiny"} {
			entries, err := os.ReadDir(from)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.IsDir() { // what a model folder has beside the model is not read from buckets
					continue
				}
				if err := objectstore.PutFile(t.Context(), store, to+"/"+e.Name(), filepath.Join(from, e.Name()), objectstore.PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		inspect := func(where ...string) (string, error) {
			out, _, err := execute(t, append([]string{"inspect", "--policy", "lookaheadkv", "--budget", "16", "--example", "needle", "--tokens", "64", "--json"}, where...)...)
			return out, err
		}
		want, err := inspect("--model", reference, "--adapter", adapters)
		if err != nil {
			t.Fatal(err)
		}
		remote := []string{"--model", "s3://test/models/tiny", "--adapter", "s3://test/adapters/tiny", "--s3-endpoint", s.URL}
		for i := range 2 {
			s.Disturb(nil)
			got, err := inspect(remote...)
			if err != nil {
				t.Fatal(err)
			}
			if headsOf(got) != headsOf(want) {
				t.Error("the model in the bucket gives other scores than the local one")
			}
			if n := s.Count("GET models/tiny/model.safetensors"); n != 1-i {
				t.Errorf("time %d: %d requests for the weights, want %d", i+1, n, 1-i)
			}
		}
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"--adapter", adapters, "--model", "s3://test/models/none"}, "there is no object below that name"},
			{[]string{"--adapter", adapters, "--model", "s3://test/adapters/tiny"}, "neither model.safetensors nor"},
			{[]string{"--adapter", "s3://test/adapters/none"}, "read adapter s3://test/adapters/none: not an adapter folder: no glimpse.json, want"},
			{[]string{"--adapter", adapters, "--model", "s3://none/models/tiny"}, `bucket "none" does not exist`},
			{[]string{"--adapter", adapters, "--model", "s3://test"}, "want s3://BUCKET/NAME"},
		} {
			if _, err := inspect(append(c.args, "--s3-endpoint", s.URL)...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: error %v, want it to say %q", c.args, err, c.want)
			}
		}
		s.Alter(t, "adapters/tiny/adapter_model.safetensors", 9000)
		if _, err := inspect(remote...); !errors.Is(err, checkpoints.ErrCorrupt) && !errors.Is(err, objectstore.ErrDamaged) {
			t.Errorf("an altered adapter: error %v", err)
		}
		t.Setenv("GLIMPSE_CACHE", t.TempDir())
		s.Alter(t, "models/tiny/model.safetensors", 60_000)
		if _, err := inspect(remote[0], remote[1], remote[4], remote[5], "--adapter", adapters); !errors.Is(err, objectstore.ErrDamaged) {
			t.Errorf("altered weights: error %v, want ErrDamaged", err)
		}
	})
}

// headsOf is what inspect prints of the heads, without the model's name.
func headsOf(out string) string {
	_, heads, _ := strings.Cut(out, `"heads"`)
	return heads
}
