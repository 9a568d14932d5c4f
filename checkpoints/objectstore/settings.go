package objectstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/spf13/pflag"

	"glimpse/internal/patience"
	"glimpse/internal/progress"
	"glimpse/internal/secret"
)

// Settings say how S3 is reached. The zero value leaves everything to the
// environment and the shared configuration files, by the rules of the AWS SDK:
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_REGION,
// AWS_ENDPOINT_URL_S3, AWS_CA_BUNDLE, AWS_MAX_ATTEMPTS and so on.
type Settings struct {
	Endpoint string `json:"endpoint,omitempty"` // address of another S3 server, such as http://127.0.0.1:9000
	Region   string `json:"region,omitempty"`
	// PathStyle names the bucket in the path, as most servers but Amazon's want it,
	// rather than in the host: "auto" or "" does so where an endpoint is given,
	// "true" and "false" decide.
	PathStyle string `json:"path_style,omitempty"`

	// Notice (may be nil) is told what is waited for when that takes long. It may be called
	// concurrently.
	Notice func(text string) `json:"-"`

	partSize int64         // 0: defaultPartSize; tests take the least that S3 allows
	pause    time.Duration // before the second attempt; 0: firstPause
	attempts int           // 0: maxAttempts
	silence  time.Duration // 0: patience.Silence
}

// Bind adds the flags. What is waited for is told on standard error.
func (s *Settings) Bind(f *pflag.FlagSet) {
	s.Notice = func(text string) { fmt.Fprintln(progress.Stderr, text) }
	f.StringVar(&s.Endpoint, "s3-endpoint", s.Endpoint, "address of the S3 server for s3:// names; empty is $AWS_ENDPOINT_URL_S3, or Amazon's")
	f.StringVar(&s.Region, "s3-region", s.Region, "region of the S3 bucket; empty is $AWS_REGION")
	f.StringVar(&s.PathStyle, "s3-path-style", s.PathStyle, "put the bucket into the path of S3 addresses: true, false, or auto (all servers but Amazon's)")
}

const (
	// The last attempt comes about two minutes after the first. AWS_MAX_ATTEMPTS sets
	// another number.
	maxAttempts = 10
	firstPause  = 300 * time.Millisecond
	maxPause    = 20 * time.Second

	// credentialAttempts is the SDK's own number.
	credentialAttempts = 3

	defaultPartSize = 8 << 20
	maxParts        = 10_000
)

// bucket opens a bucket. Nothing is sent yet.
func (s Settings) bucket(ctx context.Context, name string) (*bucket, error) {
	if s.Endpoint != "" {
		if u, err := url.Parse(s.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("endpoint: got %q, want an address such as https://s3.example.org", s.Endpoint)
		}
	}
	// A retryer of our own keeps the client from reading AWS_MAX_ATTEMPTS.
	env, err := config.NewEnvConfig()
	if err != nil {
		return nil, err
	}
	b := &bucket{
		name:     name,
		partSize: cmp.Or(s.partSize, defaultPartSize),
		pause:    cmp.Or(s.pause, firstPause),
		attempts: cmp.Or(s.attempts, env.RetryMaxAttempts, maxAttempts),
	}
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRetryMaxAttempts(credentialAttempts),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.ResponseHeaderTimeout = cmp.Or(s.silence, patience.Silence)
		}).WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout })),
		config.WithLogger(logging.Nop{}), // what fails is an error of ours
		config.WithRegion(s.Region),
	)
	if err != nil {
		return nil, setupError(err)
	}
	// What gives credentials is asked as the SDK does, above; objects with patience.
	cfg.RetryMaxAttempts = 0
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = b.attempts
			o.Retryables = append([]retry.IsErrorRetryable{retryable{}}, o.Retryables...)
			o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
				return backoff(b.pause, attempt), nil
			})
		})
	}
	cfg.Credentials = &credentials{CredentialsProvider: cfg.Credentials}
	endpoint := cmp.Or(s.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), aws.ToString(cfg.BaseEndpoint))
	var pathStyle bool
	switch s.PathStyle {
	case "", "auto":
		pathStyle = endpoint != ""
	case "true", "false":
		pathStyle = s.PathStyle == "true"
	default:
		return nil, fmt.Errorf("path style: got %q, want auto, true or false", s.PathStyle)
	}
	if cfg.Region == "" {
		if endpoint == "" {
			return nil, errors.New("no region is set: give --s3-region or AWS_REGION")
		}
		cfg.Region = "us-east-1" // servers other than Amazon's take no notice of it
	}
	b.warn = func(text string) {
		if _, before := warned.LoadOrStore(endpoint, true); !before && s.Notice != nil && strings.HasPrefix(strings.ToLower(endpoint), "http://") {
			s.Notice(text)
		}
	}
	b.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = pathStyle
		o.APIOptions = append(o.APIOptions, refuseEmptyAnswers)
		// Around the SDK's client, which has taken AWS_CA_BUNDLE into account.
		if c, ok := o.HTTPClient.(*awshttp.BuildableClient); ok {
			o.HTTPClient = staying(c)
		}
		o.HTTPClient = &patience.Client{Doer: &reach{Doer: o.HTTPClient}, Tell: s.Notice, Silence: s.silence, Notice: s.silence / 2}
		// Ranges and multipart uploads have no checksum that the SDK could compare; what
		// can be compared is compared by Info.verify.
		o.DisableLogOutputChecksumValidationSkipped = true
		if s.Endpoint != "" {
			o.BaseEndpoint = aws.String(s.Endpoint)
		}
	})
	return b, nil
}

// staying is a client that follows no redirect to another server, which would get contents and
// the session token. Signatures hold for the first server alone.
func staying(c *awshttp.BuildableClient) aws.HTTPClient {
	client, ok := c.Freeze().(*http.Client)
	if !ok {
		panic(fmt.Sprintf("the SDK's client is a %T, want *http.Client", c.Freeze()))
	}
	usual := client.CheckRedirect // of 307 and 308 alone
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if secret.Stay(r, via) != nil {
			return http.ErrUseLastResponse
		}
		return usual(r, via)
	}
	return client
}

// backoff is the pause before another attempt: doubled each time, with up to half
// of it random so that many clients do not come back at once.
func backoff(first time.Duration, attempt int) time.Duration {
	d := min(first<<min(attempt, 20), maxPause) // which no more doublings change
	return d/2 + rand.N(d/2+1)
}
