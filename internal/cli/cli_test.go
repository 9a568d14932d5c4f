package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestBesidesCancelled(t *testing.T) {
	for _, x := range []struct {
		err  error
		want string
	}{
		{context.Canceled, ""},
		{fmt.Errorf("eval: %w", context.Canceled), ": eval"},
		{errors.Join(fmt.Errorf("step 3: %w", context.Canceled), errors.New("disk is full")), ": step 3\ndisk is full"},
		{errors.Join(context.Canceled, errors.New("disk is full")), ": disk is full"},
	} {
		if got := besidesCancelled(x.err); got != x.want {
			t.Errorf("%q: %q, want %q", x.err, got, x.want)
		}
	}
}
