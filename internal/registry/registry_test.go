package registry

import (
	"slices"
	"strings"
	"testing"
)

func TestLookupListsValidNames(t *testing.T) {
	r := Registry[int]{Noun: "policy"}
	r.Add("snapkv", 2)
	r.Add("full", 1)
	if v, err := r.Lookup("snapkv"); err != nil || v != 2 {
		t.Fatalf("Lookup(snapkv) = %d, %v", v, err)
	}
	_, err := r.Lookup("snapvk")
	if err == nil || !strings.Contains(err.Error(), `unknown policy "snapvk", want one of: full, snapkv; did you mean "snapkv"?`) {
		t.Fatalf("error %v does not name the policy and the valid names", err)
	}
	if got := r.Names(); !slices.Equal(got, []string{"full", "snapkv"}) {
		t.Fatalf("Names() = %v, want sorted", got)
	}
	for name, v := range r.All() {
		if name != "full" || v != 1 {
			t.Fatalf("All() begins with %q, %d, want the first of the names", name, v)
		}
		break
	}
}

func TestAddRejectsDuplicates(t *testing.T) {
	r := Registry[int]{Noun: "policy"}
	r.Add("full", 1)
	defer func() {
		if recover() == nil {
			t.Fatal("duplicate Add did not panic")
		}
	}()
	r.Add("full", 2)
}
