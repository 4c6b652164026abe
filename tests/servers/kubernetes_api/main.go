// The API server of Kubernetes with the store that it needs, in one process:
//
//	kubernetes_api FOLDER ETCD_PORT ETCD_PEER_PORT [OPTIONS OF kube-apiserver]
package main

import (
	"fmt"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func loopback(port string) url.URL {
	return url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
}

// startStore starts an etcd with one member, and returns its address.
func startStore(folder, port, peerPort string) (string, error) {
	client, peer := loopback(port), loopback(peerPort)
	config := embed.NewConfig()
	config.Dir = folder
	config.LogLevel = "error"
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	store, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	<-store.Server.ReadyNotify()
	return client.String(), nil
}

func main() {
	address, err := startStore(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
	os.Args = append([]string{os.Args[0], "--etcd-servers", address}, os.Args[4:]...)
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
