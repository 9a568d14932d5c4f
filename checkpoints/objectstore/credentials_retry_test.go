package objectstore

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// TestCredentialsAreWaitedFor: a server of credentials that cannot be reached is tried again by a run that had some, and
// otherwise given up at once.
func TestCredentialsAreWaitedFor(t *testing.T) {
	down, wrong := &net.OpError{Op: "dial", Err: errors.New("refused")}, errors.New("no such file")
	for _, c := range []struct {
		name  string
		err   error
		had   bool
		again bool
	}{{"down from the beginning", down, false, false}, {"down later", down, true, true}, {"wrong later", wrong, true, false}} {
		var fails error
		p := &credentials{CredentialsProvider: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, fails })}
		if c.had {
			if _, err := p.Retrieve(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		fails = c.err
		_, err := p.Retrieve(t.Context())
		none, ok := errors.AsType[*credentialsError](err)
		if !ok || none.RetryableError() != c.again || final(err) == c.again {
			t.Errorf("%s: %v, tried again: %t, want %t", c.name, err, none.RetryableError(), c.again)
		}
	}
}
