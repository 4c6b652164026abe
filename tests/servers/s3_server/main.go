// versitygw's S3 server over a folder, without its other backends and its command line, which take time to build:
//
//	s3_server PORT REGION FOLDER [FOLDER OF METADATA]
//
// The credentials are in ROOT_ACCESS_KEY and ROOT_SECRET_KEY.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// serve answers requests until it fails. The limits are those of versitygw's own command.
func serve(port, region, folder, beside string) error {
	options := posix.PosixOpts{SideCarDir: beside, Concurrency: 5000, CopyObjectThreshold: 5 << 30}
	options.SetNewDirPerm(0o755)
	options.SetNewFilePerm(0o644)
	var metadata meta.MetadataStorer = meta.XattrMeta{}
	if beside != "" {
		store, err := meta.NewSideCar(beside)
		if err != nil {
			return err
		}
		metadata = store
	}
	backend, err := posix.New(folder, metadata, options)
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), backend, &embedgw.Config{
		RootUserAccess:    os.Getenv("ROOT_ACCESS_KEY"),
		RootUserSecret:    os.Getenv("ROOT_SECRET_KEY"),
		Region:            region,
		Ports:             []string{"127.0.0.1:" + port},
		MaxConnections:    250000,
		MaxRequests:       100000,
		MultipartMaxParts: 10000,
		Quiet:             true,
	})
}

func main() {
	if len(os.Args) < 4 || len(os.Args) > 5 {
		fmt.Fprintln(os.Stderr, "usage: s3_server PORT REGION FOLDER [FOLDER OF METADATA]")
		os.Exit(2)
	}
	beside := ""
	if len(os.Args) == 5 {
		beside = os.Args[4]
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3], beside); err != nil {
		fmt.Fprintln(os.Stderr, "s3_server:", err)
		os.Exit(1)
	}
}
