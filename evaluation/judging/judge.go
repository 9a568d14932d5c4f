package judging

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"glimpse/internal/patience"
	"glimpse/internal/secret"
)

// Defaults of a Judge.
const (
	DefaultTimeout   = 2 * time.Minute
	DefaultAttempts  = 6
	DefaultMaxTokens = 2048 // of a judgement, as MT-Bench's judge has it
)

// Bounds of the wait between two attempts and of the length of an answer.
const (
	firstPause = time.Second
	lastPause  = time.Minute
	maxAnswer  = 8 << 20 // bytes
)

// ErrRefused is of answers that another attempt would get, too: a wrong key, a model that is
// not there.
var ErrRefused = errors.New("the judge refuses")

// Judge is a server with OpenAI's chat completions. It is safe for concurrent use.
type Judge struct {
	URL   string // up to and with "/v1", or that of the chat completions themselves
	Model string
	Key   string // goes into the Authorization header; "" for none

	Timeout   time.Duration // of one attempt; 0 is DefaultTimeout
	Attempts  int           // for one judgement; 0 is DefaultAttempts
	MaxTokens int           // of a judgement; 0 is DefaultMaxTokens

	// Tell (may be nil) is told what is waited for when that takes long. It may be called
	// concurrently.
	Tell func(text string)

	// pause waits before another attempt; tests shorten it.
	pause func(context.Context, time.Duration) error
}

// Validate returns an error that names what is missing or wrong.
func (j *Judge) Validate() error {
	u, err := url.Parse(j.URL)
	switch {
	case j.URL == "":
		return errors.New("judge: no address")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("judge: address %q, want http:// or https:// and a host", j.URL)
	case u.User != nil:
		return errors.New("judge: a user or password in the address, want the key in an environment variable")
	case j.Model == "":
		return errors.New("judge: no model")
	case strings.ContainsFunc(j.Key, unicode.IsControl):
		return errors.New("judge: a line end or another control character in the key, want one line")
	case j.Timeout < 0 || j.Attempts < 0 || j.MaxTokens < 0:
		return fmt.Errorf("judge: timeout %v, %d attempts, %d tokens: want none below 0", j.Timeout, j.Attempts, j.MaxTokens)
	}
	return nil
}

// message is one of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type request struct {
	Model       string    `json:"model"`
	Messages    []message `json:"messages"`
	Temperature float64   `json:"temperature"`
	MaxTokens   int       `json:"max_tokens"`
}

type response struct {
	Choices []struct {
		Message message `json:"message"`
	} `json:"choices"`
}

// client follows no redirect to another server, which would get the key or the prompts.
var client = &http.Client{CheckRedirect: secret.Stay}

// Ask returns what the judge says. Errors of the network, of a busy or broken server and
// timeouts are tried again, with growing pauses or what the server asks for; ErrRefused is
// not. The key is masked wherever the server repeats it.
func (j *Judge) Ask(ctx context.Context, system, user string) (string, error) {
	text, err := j.askServer(ctx, system, user)
	return secret.Mask(text, j.Key), secret.MaskError(err, j.Key)
}

func (j *Judge) askServer(ctx context.Context, system, user string) (string, error) {
	body, err := json.Marshal(request{Model: j.Model, MaxTokens: cmp.Or(j.MaxTokens, DefaultMaxTokens), Messages: []message{{"system", system}, {"user", user}}})
	if err != nil {
		return "", fmt.Errorf("judge: %w", err)
	}
	attempts := cmp.Or(j.Attempts, DefaultAttempts)
	wait := firstPause
	for try := 1; ; try++ {
		text, after, err := j.attempt(ctx, body)
		switch {
		case err == nil:
			return text, nil
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case errors.Is(err, ErrRefused):
			return "", fmt.Errorf("judge %s: %w", j.Model, err)
		case try >= attempts:
			return "", fmt.Errorf("judge %s: %d attempts: %w", j.Model, attempts, err)
		}
		pause := j.pause
		if pause == nil {
			pause = patience.Sleep
		}
		next := min(max(wait, after), lastPause)
		if j.Tell != nil && next >= patience.Notice {
			j.Tell(secret.Mask(fmt.Sprintf("%v; attempt %d of %d in %v", err, try+1, attempts, next), j.Key))
		}
		if err := pause(ctx, next); err != nil {
			return "", err
		}
		wait = min(2*wait, lastPause)
	}
}

// attempt asks once. after is what the server wants to be waited for.
func (j *Judge) attempt(ctx context.Context, body []byte) (text string, after time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(j.Timeout, DefaultTimeout), fmt.Errorf("no answer within %v", cmp.Or(j.Timeout, DefaultTimeout)))
	defer cancel()
	address := strings.TrimSuffix(j.URL, "/")
	if !strings.HasSuffix(address, "/chat/completions") {
		address += "/chat/completions"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	r.Header.Set("Content-Type", "application/json")
	if j.Key != "" {
		r.Header.Set("Authorization", "Bearer "+j.Key)
	}
	// The time of an attempt ends it, and no silence before: a judge may think for long.
	patient := &patience.Client{Doer: client, Tell: j.Tell, Silence: 2 * cmp.Or(j.Timeout, DefaultTimeout)}
	answer, err := patient.Do(r)
	if errors.Is(err, secret.ErrRedirect) {
		return "", 0, fmt.Errorf("%w: %s: %w", ErrRefused, address, errors.Unwrap(err)) // of url.Error, whose address has a query
	}
	if err != nil {
		return "", 0, cause(ctx, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	excerpt := func(data []byte) string { return excerpt(secret.Mask(string(data), j.Key)) } // before it is cut
	switch {
	case err != nil:
		return "", 0, cause(ctx, err)
	case len(data) > maxAnswer:
		return "", 0, fmt.Errorf("%w: an answer of more than %d bytes", ErrRefused, maxAnswer)
	case answer.StatusCode != http.StatusOK:
		err := fmt.Errorf("%s: %s: %s", address, answer.Status, excerpt(data))
		after = patience.After(answer.Header, lastPause)
		if c := answer.StatusCode; c < 500 && c != http.StatusTooManyRequests && c != http.StatusRequestTimeout && c != http.StatusConflict {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return "", after, err
	}
	var got response
	if err := json.Unmarshal(data, &got); err != nil {
		return "", 0, fmt.Errorf("%s: want a chat completion: %w: %s", address, err, excerpt(data))
	}
	if len(got.Choices) == 0 || got.Choices[0].Message.Content == "" {
		return "", 0, fmt.Errorf("%s: a chat completion without content: %s", address, excerpt(data))
	}
	return got.Choices[0].Message.Content, 0, nil
}

// cause prefers why a context ended to that it did.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// excerpt is the beginning of an answer in one line.
func excerpt(data string) string {
	const most = 300
	text := strings.Join(strings.Fields(strings.ToValidUTF8(data[:min(len(data), most)], "")), " ")
	if len(data) > most {
		text += " …"
	}
	return text
}
